"""`model2vec:PATH-OR-NAME`, against the model2vec package on the same files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loopback_hub import COMMIT, loopback_hub
from make_model2vec import make_model2vec
from make_static import VOCABULARY, small_tokenizer, small_vectors
from model2vec import StaticModel
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers

from ensembed.encoders import open_encoder
from ensembed.errors import EncoderError, InputError
from ensembed.testing import SENTENCES, check_encoder

SIZE = len(VOCABULARY)
# Long ones are cut, by characters and by tokens; some have no token that is known, or none at all.
TEXTS = [*SENTENCES, "", " ", "東京", "two dogs " * 400, "a" * 3000, ". " * 3000, "snow" + " " * 3000 + "snow"]
RNG = np.random.default_rng(5)
MAPPING = RNG.integers(0, 20, SIZE)
WEIGHTS = RNG.random(SIZE)


def saved(folder: Path, vectors: NDArray[Any], tokenizer: Tokenizer | None = None, **how: Any) -> str:  # noqa: ANN401 - whatever the library takes
    StaticModel(vectors, tokenizer or small_tokenizer(), **how).save_pretrained(folder)
    return f"model2vec:{folder}"


def reference(name: str, **how: Any) -> NDArray[np.float32]:  # noqa: ANN401 - whatever the library takes
    model = StaticModel.from_pretrained(name.removeprefix("model2vec:"), **how)
    return np.asarray(model.encode(TEXTS), np.float32)


def unigram() -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram([("<unk>", -9.0), ("▁", -2.0), *((w, -3.0) for w in VOCABULARY[2:])], 0))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    return tokenizer


def words(unknown: str | None) -> Tokenizer:
    tokens = {token: i for i, token in enumerate(VOCABULARY)}
    # Without an unknown token, what is not in the vocabulary gives no token at all.
    tokenizer = Tokenizer(models.WordLevel(tokens, unknown) if unknown else models.BPE(tokens, []))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64, np.int8])
@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"weights": WEIGHTS},
        {"weights": WEIGHTS.astype(np.float16)},
        {"token_mapping": MAPPING},
        {"token_mapping": MAPPING.astype(np.uint8)},
        {"token_mapping": MAPPING, "weights": WEIGHTS.astype(np.float32)},
    ],
    ids=lambda parts: "+".join(f"{name} {array.dtype}" for name, array in parts.items()) or "plain",
)
def test_vectors_are_those_of_model2vec(
    tmp_path: Path, parts: dict[str, Any], dtype: type[np.number], normalize: bool
) -> None:
    vectors = (20 * small_vectors()).astype(dtype)[: 20 if "token_mapping" in parts else None]
    name = saved(tmp_path, vectors, normalize=normalize, **parts)
    encoder = open_encoder(name)
    assert encoder.spec.normalize == normalize
    np.testing.assert_allclose(encoder.encode(TEXTS), reference(name), rtol=1e-6, atol=1e-6)
    if dtype is np.float16:  # rounded in the same way to the last bit
        assert np.array_equal(encoder.encode(TEXTS), reference(name))


@pytest.mark.parametrize("tokenizer", [unigram(), words("[UNK]"), words(None)], ids=["unigram", "words", "letters"])
def test_vectors_are_those_of_model2vec_with_other_tokenizers(tmp_path: Path, tokenizer: Tokenizer) -> None:
    vectors = small_vectors()[: tokenizer.get_vocab_size()]
    tokenizer.enable_padding(length=50)
    tokenizer.enable_truncation(4)
    name = saved(tmp_path, vectors, tokenizer)
    encoder = open_encoder(name)
    np.testing.assert_allclose(encoder.encode(TEXTS), reference(name), rtol=1e-6, atol=1e-6)
    check_encoder(encoder)


def test_the_contract_holds(tmp_path: Path) -> None:
    check_encoder(open_encoder(make_model2vec(tmp_path)))
    check_encoder(open_encoder(saved(tmp_path, small_vectors().astype(np.float16), weights=WEIGHTS)))


def test_max_length_cuts_as_model2vec_does(tmp_path: Path) -> None:
    name = saved(tmp_path, small_vectors())
    assert open_encoder(name).spec.max_length == 512
    for length in (1, 7, 512, 600):
        encoder = open_encoder(f"{name}?max_length={length}")
        np.testing.assert_allclose(encoder.encode(TEXTS), reference(name, max_length=length), rtol=1e-6, atol=1e-6)
    endless = open_encoder(f"{name}?max_length=0")
    assert endless.spec.max_length is None
    np.testing.assert_allclose(endless.encode(TEXTS), reference(name, max_length=None), rtol=1e-5, atol=1e-6)
    for length in (-1, 10**6 + 1, 10**20):
        with pytest.raises(InputError, match=f"'{length}' is not a value for max_length"):
            open_encoder(f"{name}?max_length={length}")
    for limit in (9, None):
        name = saved(tmp_path, small_vectors(), max_length=limit)
        assert open_encoder(name).spec.max_length == limit
        np.testing.assert_allclose(open_encoder(name).encode(TEXTS), reference(name), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("place", [".", "0_StaticEmbedding"])
def test_layouts_of_sentence_transformers_are_read(tmp_path: Path, place: str) -> None:
    (tmp_path / place).mkdir(exist_ok=True)
    small_tokenizer().save(str(tmp_path / place / "tokenizer.json"))
    save_file({"embedding.weight": small_vectors()}, tmp_path / place / "model.safetensors")
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps({"prompts": {}}))
    name = f"model2vec:{tmp_path}"
    np.testing.assert_allclose(open_encoder(name).encode(TEXTS), reference(name), rtol=1e-6, atol=1e-6)


def test_the_key_is_that_of_weights_and_settings(tmp_path: Path) -> None:
    cases: list[tuple[int, dict[str, Any]]] = [(0, {}), (1, {}), (0, {"normalize": True}), (0, {"max_length": 9})]
    keys = [
        open_encoder(saved(tmp_path / str(i), small_vectors(seed), **how)).spec.key
        for i, (seed, how) in enumerate(cases)
    ]
    assert len(set(keys)) == 4
    (tmp_path / "0" / "README.md").write_text("Another one.")
    again = saved(tmp_path / "again", small_vectors(), base_model_name="some/model")
    assert open_encoder(again).spec.key == open_encoder(f"model2vec:{tmp_path / '0'}").spec.key == keys[0]


@pytest.mark.parametrize("file", ["model.safetensors", "tokenizer.json", "config.json"])
def test_damaged_and_absent_files_are_named(tmp_path: Path, file: str) -> None:
    name = saved(tmp_path, small_vectors())
    whole = (tmp_path / file).read_bytes()
    for content in (whole[: len(whole) // 2], b"", b"\xff" * 64, b"[1]"):
        (tmp_path / file).write_bytes(content)
        with pytest.raises(EncoderError, match=file):
            open_encoder(name)
    (tmp_path / file).unlink()
    with pytest.raises((EncoderError, InputError), match=file):
        open_encoder(name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"embeddings": small_vectors()[1:]}, "vocabulary needs"),
        ({"mapping": MAPPING[1:]}, "a row for each of"),
        ({"mapping": MAPPING + SIZE}, "vocabulary needs"),
        ({"mapping": MAPPING - 20}, "something else than row numbers"),
        ({"mapping": MAPPING.astype(np.float32)}, "something else than row numbers"),
        ({"weights": WEIGHTS[1:]}, "a weight for each of"),
        ({"weights": WEIGHTS[:, None]}, "a weight for each of"),
    ],
)
def test_parts_that_do_not_fit_are_refused(tmp_path: Path, change: dict[str, NDArray[Any]], message: str) -> None:
    name = saved(tmp_path, small_vectors())
    save_file({**load_file(tmp_path / "model.safetensors"), **change}, tmp_path / "model.safetensors")
    with pytest.raises(EncoderError, match=message):
        open_encoder(name)


def test_another_model_is_refused(tmp_path: Path) -> None:
    name = saved(tmp_path, small_vectors())
    save_file({"bert.weight": small_vectors()}, tmp_path / "model.safetensors")
    with pytest.raises(EncoderError, match=r"holds bert\.weight, not the embeddings"):
        open_encoder(name)
    for config in ({"max_length": "long"}, {"max_length": 0}, {"normalize": "yes"}):
        (tmp_path / "config.json").write_text(json.dumps(config))
        with pytest.raises(EncoderError, match="which make no sense"):
            open_encoder(name)
    with pytest.raises(InputError, match="only hub models have revisions"):
        open_encoder(f"{name}?revision=main")
    with pytest.raises(InputError, match=r"'no such/\.\./name' is neither a folder here nor a name on the hub"):
        open_encoder("model2vec:no such/../name")


PROGRAM = """
import json, sys
from ensembed.encoders import open_encoder
encoder = open_encoder(sys.argv[1])
print(json.dumps([encoder.spec.revision, encoder.encode(["a dog runs", "so"]).tolist()]))
"""


def test_model_is_fetched_from_the_hub_at_its_commit(tmp_path: Path) -> None:
    local = open_encoder(saved(tmp_path / "repo", small_vectors(), normalize=True))
    (tmp_path / "repo" / "onnx").mkdir()
    (tmp_path / "repo" / "onnx" / "model.onnx").write_bytes(b"not needed")
    home = tmp_path / "home"
    with loopback_hub(tmp_path / "repo", "someone/small") as hub:
        for name in ("model2vec:someone/small", f"model2vec:someone/small?revision={COMMIT}"):
            done = hub.python(PROGRAM, name, home=home)
            assert done.returncode == 0, done.stderr
            revision, vectors = json.loads(done.stdout)
            assert revision == COMMIT
            np.testing.assert_allclose(vectors, local.encode(["a dog runs", "so"]), atol=1e-7)
        assert not any("onnx" in path for path in hub.asked)
        missing = hub.python(PROGRAM, "model2vec:someone/other", home=home)
        assert "MissingError: there is no folder 'someone/other' here" in missing.stderr
    offline = hub.python(PROGRAM, "model2vec:someone/small", home=home, offline=True)
    assert json.loads(offline.stdout)[0] == COMMIT, offline.stderr
