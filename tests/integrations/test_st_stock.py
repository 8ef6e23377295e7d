"""Meta-encoders of stock modules: the library alone opens them, and gives the same vectors to 1e-6 of their length."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest

from ensembed import Ensemble
from ensembed.encoders import open_encoder
from ensembed.errors import InputError
from ensembed.integrations.sentence_transformers import to_stock_sentence_transformer
from ensembed.methods import SVD, Autoencoder, Average, Concat, Method, UpProjection
from ensembed.methods.meta import Layer, Meta, Network
from ensembed.models.ensemble import MetaEncoder
from ensembed.testing import SENTENCES
from ensembed.views import ViewStore

Library: TypeAlias = Any  # the library's types are not read

HIDDEN = 16
TEXTS = [*SENTENCES, "", "a dog barks", "a dog " * 40]
CORPUS = [f"{text} {i}" for i in range(6) for text in SENTENCES]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random BERT, written by the library."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    place = tmp_path_factory.mktemp("st")
    words = sorted({word for text in TEXTS for word in text.lower().split()})
    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "query", ":", *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))  # noqa: S106 - a token of no secret
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=32, **names).save_pretrained(place / "bert")
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=HIDDEN,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=HIDDEN,
        max_position_embeddings=64,
        initializer_range=0.5,
    )
    BertModel(config).save_pretrained(place / "bert")
    modules = [Transformer(str(place / "bert")), Pooling(HIDDEN)]
    prompts = {"query": "query: ", "odd": "dog "}
    SentenceTransformer(modules=modules, prompts=prompts, device="cpu").save(str(place / "model"))
    return place / "model"


def fitted(folder: Path, method: Method, store: Path, options: str = "", others: tuple[str, ...] = ()) -> MetaEncoder:
    return Ensemble([f"st:{folder}{options}", *others]).fit(CORPUS, method, store=ViewStore(store))


def assert_same(model: MetaEncoder, folder: Path) -> Library:
    """Save the stock model, open it with the library alone, and compare."""
    from sentence_transformers import SentenceTransformer

    to_stock_sentence_transformer(model, device="cpu").save(str(folder))
    kinds = {path.name for path in folder.rglob("*.py")}
    assert not kinds
    again = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    assert all(type(module).__module__.startswith("sentence_transformers.") for module in again)
    expected = model.encode(TEXTS)
    tolerance = 1e-6 * float(np.linalg.norm(expected, axis=1).max())
    assert again.get_embedding_dimension() == model.spec.dim
    for encode in (again.encode, again.encode_query, again.encode_document):
        np.testing.assert_allclose(encode(TEXTS), expected, rtol=0, atol=tolerance)
    assert np.ptp(expected, axis=0).max() > 100 * tolerance
    return again


@pytest.mark.parametrize(
    "method",
    [
        SVD(dim=5),
        Concat(),
        Average(),
        Autoencoder(dim=6, hidden_layers=0, loss="mse"),
        Autoencoder(dim=6, hidden_layers=1, epochs=1),
        Autoencoder(dim=6, hidden_layers=2, hidden_dim=5, activation="tanh", epochs=1),
        UpProjection(dim=40),
    ],
    ids=["svd", "conc", "avg", "linear", "relu", "tanh", "up"],
)
def test_stock_model_of_one_member_has_equal_vectors(folder: Path, tmp_path: Path, method: Method) -> None:
    assert_same(fitted(folder, method, tmp_path / "views"), tmp_path / "stock")


@pytest.mark.parametrize(
    "options",
    [
        "?prompt=odd",
        "?prefix=dog ",
        "?max_length=5",
        "?truncate_dim=9",
        "?truncate_dim=9&normalize=true",
        "?normalize=true",
    ],
)
def test_options_of_the_name_are_kept(folder: Path, tmp_path: Path, options: str) -> None:
    model = fitted(folder, SVD(dim=4), tmp_path / "views", options)
    assert_same(model, tmp_path / "stock")


def test_members_of_weight_0_are_left_out(folder: Path, tmp_path: Path) -> None:
    model = fitted(folder, Concat(weights=(2.0, 0.0)), tmp_path / "views", others=("demo?dim=6&seed=1",))
    again = assert_same(model, tmp_path / "stock")
    assert again.get_embedding_dimension() == HIDDEN


def test_truncated_model_has_equal_vectors(folder: Path, tmp_path: Path) -> None:
    for i, method in enumerate((SVD(dim=5), Concat())):
        assert_same(fitted(folder, method, tmp_path / "views").truncate(3), tmp_path / f"stock {i}")


def test_network_with_unit_rows_between_has_equal_vectors(folder: Path, tmp_path: Path) -> None:
    """As `Auto` makes them for whitened members."""
    rng = np.random.default_rng(0)
    layers = [
        Layer(rng.normal(size=shape).astype(np.float32), rng.normal(size=shape[1]).astype(np.float32))
        for shape in ((HIDDEN, 6), (6, 4))
    ]
    meta = Meta({"name": "auto"}, 9, (Network(tuple(layers), "unit", start=3),), normalize=True)
    assert_same(MetaEncoder(Ensemble([f"st:{folder}"]), meta), tmp_path / "stock")


def test_truncated_library_model_has_equal_vectors(folder: Path, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    shorter = SentenceTransformer(str(folder), device="cpu", local_files_only=True, truncate_dim=10)
    shorter.save(str(tmp_path / "shorter"))
    model = fitted(tmp_path / "shorter", SVD(dim=4), tmp_path / "views")
    assert model.ensemble.dims == [10]
    assert_same(model, tmp_path / "stock")
    assert open_encoder(f"st:{tmp_path / 'shorter'}").spec.dim == 10  # and the member is as it was


def test_impossible_models_are_refused_with_the_reason(folder: Path, tmp_path: Path) -> None:
    two = fitted(folder, SVD(dim=4), tmp_path / "views", others=("demo?dim=6&seed=1",))
    with pytest.raises(InputError, match=r"2 members count .* no module of sentence-transformers joins"):
        to_stock_sentence_transformer(two)
    with pytest.raises(InputError, match="no model of sentence-transformers"):
        to_stock_sentence_transformer(Ensemble(["demo"]).fit([], Concat()))
    half = Ensemble([f"st:{folder}?precision=float16"]).fit([], Concat())
    with pytest.raises(InputError, match="float16 weights"):
        to_stock_sentence_transformer(half)
    with pytest.raises(InputError, match="from a meta-encoder"):
        to_stock_sentence_transformer(open_encoder("demo"))  # type: ignore[arg-type] # it is refused


def test_weights_are_a_copy(folder: Path) -> None:
    model = Ensemble([f"st:{folder}"]).fit([], Concat())
    before = model.encode(TEXTS)
    stock = to_stock_sentence_transformer(model, device="cpu")
    for parameter in stock.parameters():
        parameter.data.zero_()
    np.testing.assert_array_equal(model.encode(TEXTS), before)
