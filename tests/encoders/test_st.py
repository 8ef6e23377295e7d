"""Sentence-transformers models: against the library itself, on a small model that the tests write."""

from __future__ import annotations

import json
import logging
import shutil
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from loopback_hub import COMMIT, LoopbackHub, loopback_hub
from make_st import (
    HIDDEN,
    MAX_LENGTH,
    POSITIONS,
    PROMPTS,
    link_to_a_route,
    name_a_model,
    name_a_module,
    name_a_route,
    name_a_route_absolutely,
    name_a_route_of_a_route,
    name_a_route_outside,
    name_the_activation,
    write_code,
    write_json,
    write_st,
)
from safetensors.numpy import load_file, save_file

from ensembed.encoders import open_encoder
from ensembed.errors import EncoderError, InputError, MissingError
from ensembed.numerics.row_matrices import unit_rows
from ensembed.testing import SENTENCES, check_encoder

Library: TypeAlias = Any  # a SentenceTransformer of the library, whose types are not read


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_st(tmp_path_factory.mktemp("st") / "model")


@pytest.fixture(scope="module")
def library(folder: Path) -> Library:
    """The library's model of the folder: the reference."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from sentence_transformers import SentenceTransformer

        return SentenceTransformer(str(folder), device="cpu", local_files_only=True)


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    """A copy of the model, to be changed."""
    return Path(shutil.copytree(folder, tmp_path / "copy"))


def key(folder: Path, options: str = "", threads: int | None = None) -> str:
    return open_encoder(f"st:{folder}{options}", threads=threads).spec.key


def test_encoder_of_sentence_transformers_keeps_the_contract(folder: Path) -> None:
    check_encoder(open_encoder(f"st:{folder}"))


def test_spec_describes_the_model(folder: Path) -> None:
    spec = open_encoder(f"st:{folder}").spec
    assert (spec.name, spec.kind, spec.dim, spec.prompt) == (f"st:{folder}", "st", HIDDEN, "")
    assert (spec.max_length, spec.normalize, spec.extra) == (MAX_LENGTH, True, (("precision", "float32"),))


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        ("", {}),
        ("?prompt=query", {"prompt_name": "query"}),
        ("?prompt=document", {"prompt_name": "document"}),
        ("?prefix=a dog ", {"prompt": "a dog "}),
        ("?truncate_dim=7", {"truncate_dim": 7}),
        ("?truncate_dim=7&normalize=true", {"truncate_dim": 7, "normalize_embeddings": True}),
    ],
)
def test_vectors_are_those_of_the_library(
    folder: Path, library: Library, options: str, arguments: dict[str, Any]
) -> None:
    encoder = open_encoder(f"st:{folder}{options}")
    expected = library.encode(list(SENTENCES), **arguments)
    np.testing.assert_allclose(encoder.encode(SENTENCES), expected, atol=2e-6)
    plain = library.encode(list(SENTENCES))
    assert (options == "") == (expected.shape == plain.shape and np.allclose(expected, plain, atol=1e-3))


def test_prompts_are_the_models_and_change_the_key(folder: Path) -> None:
    query, document, plain = (open_encoder(f"st:{folder}{o}").spec for o in ("?prompt=query", "?prompt=document", ""))
    assert (query.prompt, document.prompt) == (PROMPTS["query"], PROMPTS["document"])
    assert len({query.key, document.key, plain.key}) == 3
    # The same text in front, however it was asked for, is the same encoder.
    assert key(folder, "?prefix=query: ") == query.key
    with pytest.raises(InputError, match=r"has no prompt 'passage'; it has: document, query$"):
        open_encoder(f"st:{folder}?prompt=passage")


def test_prompt_left_out_of_the_pooling_has_a_key_of_its_own(copy: Path) -> None:
    pooling = {"word_embedding_dimension": HIDDEN, "pooling_mode_mean_tokens": True, "include_prompt": False}
    write_json(copy / "1_Pooling" / "config.json", pooling)
    prompt, prefix = (open_encoder(f"st:{copy}{options}") for options in ("?prompt=query", "?prefix=query: "))
    assert not np.allclose(prompt.encode(SENTENCES), prefix.encode(SENTENCES), atol=1e-3)
    assert prompt.spec.key != prefix.spec.key


def test_a_default_prompt_and_a_passage_prompt_are_used_as_the_library_does(copy: Path) -> None:
    prompts = {"passage": "passage: ", "sts": "a report "}
    write_json(copy / "config_sentence_transformers.json", {"prompts": prompts, "default_prompt_name": "sts"})
    from sentence_transformers import SentenceTransformer

    library = SentenceTransformer(str(copy), device="cpu", local_files_only=True)
    for options, encode in (("", library.encode), ("?prompt=document", library.encode_document)):
        encoder = open_encoder(f"st:{copy}{options}")
        np.testing.assert_allclose(encoder.encode(SENTENCES), encode(list(SENTENCES)), atol=2e-6)
    assert open_encoder(f"st:{copy}").spec.prompt == "a report "
    # Both versions 5 and 6 are right about queries: 6 has an empty prompt of its own, 5 takes the default one.
    query = open_encoder(f"st:{copy}?prompt=query")
    np.testing.assert_allclose(query.encode(SENTENCES), library.encode_query(list(SENTENCES)), atol=2e-6)
    # Without a prompt in the name the model's own prompts are those of queries and documents.
    plain = open_encoder(f"st:{copy}")
    np.testing.assert_allclose(plain.encode_query(SENTENCES), library.encode_query(list(SENTENCES)), atol=2e-6)
    np.testing.assert_allclose(plain.encode_document(SENTENCES), library.encode_document(list(SENTENCES)), atol=2e-6)
    assert plain.document_encoder.spec.key == open_encoder(f"st:{copy}?prompt=document").spec.key
    assert query.query_encoder is query.document_encoder is query


def test_router_encodes_by_the_prompt(folder: Path, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    other = write_st(tmp_path / "other", seed=1)
    ways = [SentenceTransformer(str(f), device="cpu", local_files_only=True) for f in (folder, other)]
    write_router(tmp_path / "router", folder, other)
    encoders = [open_encoder(f"st:{tmp_path / 'router'}?prompt={task}") for task in ("query", "document")]
    for encoder, way in zip(encoders, ways, strict=True):
        np.testing.assert_allclose(encoder.encode(SENTENCES), way.encode(list(SENTENCES)), atol=2e-6)
    assert encoders[0].spec.extra == (("precision", "float32"), ("task", "query"))
    assert encoders[0].spec.key != encoders[1].spec.key
    with pytest.raises(EncoderError, match=r"(?s)cannot encode.*add \?prompt=query or \?prompt=document"):
        open_encoder(f"st:{tmp_path / 'router'}")


def write_router(target: Path, query: Path, document: Path) -> None:
    """A model whose queries and documents go through models of their own."""
    kinds = {"query_0": "Transformer", "query_1": "Pooling", "query_2": "Normalize"}
    kinds |= {name.replace("query", "document"): kind for name, kind in kinds.items()}
    for way, model in (("query", query), ("document", document)):
        shutil.copytree(model, target / f"{way}_0")
        shutil.copytree(model / "1_Pooling", target / f"{way}_1")
        (target / f"{way}_2").mkdir()
    structure = {way: [f"{way}_{i}" for i in range(3)] for way in ("query", "document")}
    types = {name: f"sentence_transformers.models.{kind}" for name, kind in kinds.items()}
    parameters = {"default_route": None, "allow_empty_key": False}
    write_json(target / "router_config.json", {"types": types, "structure": structure, "parameters": parameters})
    kind = "sentence_transformers.models.Router"
    write_json(target / "modules.json", [{"idx": 0, "name": "0", "path": "", "type": kind}])


@pytest.mark.parametrize("options", ["?max_length=5", "?precision=float16", "?precision=bfloat16"])
def test_options_change_the_numbers_and_the_key(folder: Path, library: Library, options: str) -> None:
    encoder = open_encoder(f"st:{folder}{options}")
    assert encoder.spec.key != key(folder)
    vectors, plain = encoder.encode(SENTENCES), library.encode(list(SENTENCES))
    assert not np.allclose(vectors, plain, atol=1e-6)
    alone = np.concatenate([encoder.encode([sentence]) for sentence in SENTENCES])
    np.testing.assert_allclose(alone, vectors, atol=1e-6)
    if "precision" in options:  # close, but rounded; also the length, which the encoder then does not promise
        assert np.sum(unit_rows(vectors) * plain, axis=1).min() > 0.999
        assert not encoder.spec.normalize


def test_what_does_not_change_the_numbers_does_not_change_the_key(folder: Path, copy: Path) -> None:
    keys = {key(folder), key(folder, "?device=cpu"), key(folder, "?batch_size=3"), key(folder, threads=1)}
    keys.add(key(folder, "?precision=float32&max_length=64&trust_remote_code=false&normalize=true"))
    (copy / "README.md").write_text("# About")
    (copy / "notes.py").write_text("raise SystemExit")
    (copy / "onnx").mkdir()
    (copy / "onnx" / "model.onnx").write_bytes(b"the same weights for another program")
    (copy / ".git").mkdir()
    (copy / ".git" / "config").write_text("hidden")
    assert {*keys, key(copy)} == {key(folder)}


def test_a_changed_byte_changes_the_key(copy: Path, folder: Path) -> None:
    content = bytearray((copy / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (copy / "model.safetensors").write_bytes(content)
    assert key(copy) != key(folder)


def test_threads_are_set_for_the_encoding_only(folder: Path, library: Library) -> None:
    import torch

    before = torch.get_num_threads()
    one = open_encoder(f"st:{folder}", threads=1)
    np.testing.assert_allclose(one.encode(SENTENCES), library.encode(list(SENTENCES)), atol=2e-6)
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("?max_length=2", f"max_length must be from 3 to {POSITIONS}, not 2"),
        (f"?max_length={POSITIONS + 1}", f"max_length must be from 3 to {POSITIONS}, not {POSITIONS + 1}"),
        ("?max_length=many", "'many' is not a value for max_length"),
        ("?batch_size=0", "'0' is not a value for batch_size"),
        ("?precision=int8", "'int8' is not a value for precision"),
        ("?device=abacus", "there is no device 'abacus' here"),
        ("?revision=main", "a revision is for models of the hub"),
        ("?pooling=cls", "has no option 'pooling'; it has: prompt, max_length, device"),
    ],
)
def test_impossible_options_are_refused(folder: Path, options: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_encoder(f"st:{folder}{options}")


def test_all_positions_can_be_used(folder: Path) -> None:
    encoder = open_encoder(f"st:{folder}?max_length={POSITIONS}")
    longer, short = (encoder.encode(["dog " * n])[0] for n in (POSITIONS - 2, MAX_LENGTH - 2))
    assert not np.allclose(longer, short)


@pytest.mark.parametrize(
    "text",
    [
        "word " * 50_000,
        " " * 200_000 + "dog",
        "a" * 200_000,
        "é🙂." * 50_000,
        "dogs" * 40 + ",",
        "東京" * 9000,
        "." * 4097,
    ],
    ids=["words", "spaces", "one word", "odd", "short", "no spaces", "one too many"],
)
def test_long_texts_are_cut_without_a_change(folder: Path, library: Library, text: str) -> None:
    vectors = open_encoder(f"st:{folder}").encode([text, "a dog"])
    np.testing.assert_allclose(vectors, library.encode([text, "a dog"]), atol=2e-6)


def test_text_of_ten_megabytes_is_encoded(folder: Path) -> None:
    encoder = open_encoder(f"st:{folder}")
    start = time.process_time()
    assert np.isfinite(encoder.encode(["word " * 2_000_000, "." * 10_000_000])).all()
    assert time.process_time() - start < 2  # the whole texts take 20 s, and 4 GB


def test_nothing_is_printed_warned_or_logged(
    folder: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    levels = [logging.getLogger(name).level for name in ("transformers", "sentence_transformers")]
    open_encoder(f"st:{folder}").encode(SENTENCES)
    assert capfd.readouterr() == ("", "")
    assert not caplog.records
    assert [logging.getLogger(name).level for name in ("transformers", "sentence_transformers")] == levels


def damage_weights(folder: Path) -> None:
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[: len(content) // 2])


def remove_tensors(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["encoder.layer.1.output.dense.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (damage_weights, "cannot be opened from .*copy"),
        (remove_tensors, "lack 1 tensors, among them encoder.layer.1.output.dense.weight: random numbers"),
        (lambda folder: (folder / "model.safetensors").unlink(), "cannot be opened from .*copy"),
        (lambda folder: (folder / "modules.json").write_text("[{]"), "modules.json is not JSON"),
        (
            lambda folder: (folder / "modules.json").write_text("{}"),
            "modules.json is no list of modules",
        ),
        (lambda folder: (folder / "config.json").write_bytes(b"\xff"), "config.json is not JSON"),
        (lambda folder: (folder / "tokenizer.json").write_text("{"), r"tokenizer\.json cannot be read: Exp"),
        (lambda folder: [file.unlink() for file in folder.glob("*.json")], "has neither modules.json nor config.json"),
    ],
)
def test_damaged_models_are_refused(copy: Path, damage: Callable[[Path], object], message: str) -> None:
    damage(copy)
    with pytest.raises(EncoderError, match=f"(?s)encoder 'st:{copy}'.*{message}"):
        open_encoder(f"st:{copy}")


def test_model_without_the_unused_pooler_is_complete(copy: Path, library: Library) -> None:
    weights = load_file(copy / "model.safetensors")
    save_file({k: v for k, v in weights.items() if "pooler" not in k}, copy / "model.safetensors", {"format": "pt"})
    vectors = open_encoder(f"st:{copy}").encode(SENTENCES)
    np.testing.assert_allclose(vectors, library.encode(list(SENTENCES)), atol=2e-6)


@pytest.mark.parametrize("name", ["./absent", "/absent/folder", "a/b/c", "a b"])
def test_what_is_neither_a_folder_nor_a_name_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=r"is neither a folder nor a name on the hub"):
        open_encoder(f"st:{name}")
    with pytest.raises(InputError, match="has no path"):
        open_encoder("st:")


@pytest.mark.parametrize("change", [name_a_module, name_a_route, name_a_model])
def test_code_of_a_model_runs_only_when_asked_for(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None]
) -> None:
    marker = tmp_path / "ran"
    write_code(copy, marker)
    change(copy)
    for options in ("", "?trust_remote_code=false"):
        with pytest.raises(EncoderError, match=r"(?s)brings code of its own.*trust it, ask for st:.*true$"):
            open_encoder(f"st:{copy}{options}")
    assert not marker.exists()
    if change is name_a_module:
        monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
        monkeypatch.setattr(sys, "path", [*sys.path])
        encoder = open_encoder(f"st:{copy}?trust_remote_code=true")
        assert marker.exists()
        assert ("trust_remote_code", "true") in encoder.spec.extra


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (name_a_route_outside, r"modules\.json names '\.\./outside', outside of the model's folder: copy"),
        (name_a_route_absolutely, r"modules\.json names '/.*/outside', outside of the model's folder: copy"),
        (link_to_a_route, r"3_Router leads out of the model's folder, to .*outside: copy"),
        (name_a_route_of_a_route, r"router_config\.json names '\.\./\.\./outside', outside of the model's folder"),
        (name_the_activation, r"3_Dense/config\.json names 'torch\.hub\..*', which is no part of torch"),
    ],
)
def test_nothing_is_read_outside_of_the_folder(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None], message: str
) -> None:
    """Versions of the library before 6 would import the code, so the files are refused before it sees them."""
    marker = tmp_path / "ran"
    write_code(copy, marker)
    change(copy)
    monkeypatch.setattr("ensembed.encoders.st_loading.import_libraries", lambda _: pytest.fail("it was opened"))
    with pytest.raises(EncoderError, match=message):
        open_encoder(f"st:{copy}")
    assert not marker.exists()


@pytest.mark.parametrize(
    "kind", ["os.path.Anything", "sentence_transformers.util.misc.importlib", "sentence_transformers"]
)
def test_only_modules_of_the_library_are_imported(copy: Path, kind: str) -> None:
    modules = json.loads((copy / "modules.json").read_text())
    write_json(copy / "modules.json", [*modules, {"idx": 3, "name": "3", "path": "", "type": kind}])
    with pytest.raises(EncoderError, match=f"names '{kind}', which is no part of sentence-transformers"):
        open_encoder(f"st:{copy}")


def test_links_within_the_folder_and_to_files_are_followed(copy: Path, tmp_path: Path, library: Library) -> None:
    """The hub's cache is made of links to files."""
    (copy / "1_Pooling").rename(copy / "pooling")
    (copy / "1_Pooling").symlink_to("pooling", target_is_directory=True)
    (copy / "model.safetensors").rename(tmp_path / "weights")
    (copy / "model.safetensors").symlink_to(tmp_path / "weights")
    np.testing.assert_allclose(open_encoder(f"st:{copy}").encode(SENTENCES), library.encode(list(SENTENCES)), atol=2e-6)


def test_without_the_library_the_message_says_what_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingError, match=r"needs sentence_transformers; .*pip install 'ensembed\[st\]'"):
        open_encoder(f"st:{folder}")


PROGRAM = """
import json, sys
from ensembed.encoders import open_encoder
from ensembed.errors import EnsembedError

results = []
for name in sys.argv[1:]:
    try:
        encoder = open_encoder(name)
        results.append([encoder.spec.revision, encoder.encode(["a dog sleeps"]).tolist()])
    except EnsembedError as error:
        results.append([type(error).__name__, str(error)])
print(json.dumps(results))
"""


@pytest.fixture
def hub(copy: Path, tmp_path: Path) -> Iterator[LoopbackHub]:
    """A hub with the model and code that others may use."""
    write_code(copy, tmp_path / "ran")
    with loopback_hub(copy, "sentence-transformers/tiny") as hub:
        yield hub


def ask(hub: LoopbackHub, home: Path, *names: str, offline: bool = False) -> list[Any]:
    done = hub.python(PROGRAM, *names, home=home, offline=offline)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    results: list[Any] = json.loads(done.stdout)
    return results


def test_model_is_fetched_from_the_hub_at_its_commit(
    hub: LoopbackHub, folder: Path, library: Library, tmp_path: Path
) -> None:
    expected = library.encode(["a dog sleeps"])
    [(revision, vectors)] = ask(hub, tmp_path, f"st:{folder}")
    np.testing.assert_allclose(vectors, expected, atol=2e-6)
    assert revision == open_encoder(f"st:{folder}").spec.revision
    assert not hub.asked  # a folder needs no hub

    elsewhere = Path(shutil.copytree(folder, tmp_path / "elsewhere"))
    name_a_model(elsewhere, "sentence-transformers/tiny--custom")
    names = ["st:tiny", "st:sentence-transformers/tiny?revision=v1", f"st:tiny?revision={COMMIT}"]
    names += ["st:tiny?revision=v9", "st:other/absent", f"st:{elsewhere}", f"st:{elsewhere}?trust_remote_code=true"]
    *replies, unknown, absent, refused, trusted = ask(hub, tmp_path, *names)
    for commit, vectors in replies:
        assert commit == COMMIT
        np.testing.assert_allclose(vectors, expected, atol=2e-6)
    assert unknown[0] == "MissingError"
    assert unknown[1].startswith("the hub's model 'sentence-transformers/tiny' has no revision 'v9'")
    assert absent[0] == "MissingError"
    assert refused[0] == "EncoderError"
    assert trusted[0].endswith(f"+{COMMIT}")  # the code's own commit
    np.testing.assert_allclose(trusted[1], expected, atol=2e-6)

    count = len(hub.asked)
    again, absent = ask(hub, tmp_path, "st:tiny", "st:other/absent", offline=True)
    assert again == replies[0]
    assert absent[0] == "MissingError"
    assert hub.asked[count:] == []
