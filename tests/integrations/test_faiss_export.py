"""FAISS indexes that apply the map themselves, and graphs that are large enough to be graphs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ensembed import Ensemble, MetaEncoder
from ensembed.errors import DimensionError, InputError
from ensembed.integrations.faiss import FaissStore, export_index, faiss, linear_map, member_vectors
from ensembed.integrations.usearch import UsearchStore
from ensembed.methods import GCCA, SVD, Auto, Autoencoder, Average, Concat, Method, UpProjection
from ensembed.methods.meta import Layer, Meta, Network
from ensembed.numerics.row_matrices import unit_rows

SENTENCES = [f"the {who} {does} {what}" for who in ("dog", "cat", "man") for does in "abcde" for what in "fghij"]
QUERIES = ["a dog", "the cat b g", "nothing of that"]
BIAS = np.array([0.5, -1.0, 2.0, 0.0], np.float32)
MEMBERS = ["demo?dim=12&seed=1", "demo?dim=10&seed=2", "demo?dim=8&seed=3"]
LINEAR: dict[str, Method] = {
    "conc": Concat(),
    "conc, weighted": Concat(weights=(1.0, 0.0, 0.3)),
    "avg": Average(),
    "svd": SVD(dim=9),
    "gcca": GCCA(dim=7),
    "gcca, weighted": GCCA(dim=7, weights=(1.0, 0.0, 0.3)),
    "auto": Auto(weights=(0.7, 0.2, 0.1)),
    "auto, projected": Auto(dim=6, weights=(0.7, 0.2, 0.1)),
}


def fitted(method: Method, members: list[str] = MEMBERS) -> MetaEncoder:
    return Ensemble(members).fit(SENTENCES, method)


def check_export(model: MetaEncoder, tmp_path: Path) -> None:
    """The index finds what brute force on `model.encode` does, also after faiss alone wrote and read it."""
    index = export_index(model)
    ids = np.arange(len(SENTENCES), dtype=np.int64) * 3 + 1
    given = member_vectors(model, SENTENCES)
    assert (index.d, index.index.d) == (given.shape[1], model.spec.dim)
    index.add_with_ids(given, ids)
    vectors = faiss.downcast_index(index.index).index.reconstruct_n(0, len(SENTENCES))
    np.testing.assert_allclose(vectors, unit_rows(model.encode(SENTENCES)), atol=1e-5)
    faiss.write_index(index, str(tmp_path / "whole.faiss"))
    again = faiss.read_index(str(tmp_path / "whole.faiss"))
    cosines = model.similarity(QUERIES, SENTENCES)
    for searched in (index, again):
        scores, hits = searched.search(member_vectors(model, QUERIES), 6)
        np.testing.assert_allclose(scores, -np.sort(-cosines, axis=1)[:, :6], atol=1e-5)
        np.testing.assert_allclose(np.take_along_axis(cosines, (hits - 1) // 3, axis=1), scores, atol=1e-5)


@pytest.mark.parametrize("method", LINEAR.values(), ids=LINEAR)
def test_exported_index_ranks_as_the_model_does(method: Method, tmp_path: Path) -> None:
    check_export(fitted(method), tmp_path)


@pytest.mark.parametrize("name", ["conc", "avg", "svd", "gcca"])
def test_truncated_model_is_exported_truncated(name: str, tmp_path: Path) -> None:
    check_export(fitted(LINEAR[name]).truncate(5), tmp_path)


def test_other_linear_methods_can_be_exported(tmp_path: Path) -> None:
    check_export(fitted(UpProjection(dim=20), MEMBERS[:1]), tmp_path)
    check_export(fitted(Autoencoder(dim=6, hidden_layers=0, loss="mse")), tmp_path)  # solved, not trained
    layers = [
        Network(
            (Layer(np.full((dim, 4), 0.1 * dim, np.float32) + np.eye(dim, 4, dtype=np.float32), BIAS),), "relu", 2 * j
        )
        for j, dim in enumerate((12, 10, 8))
    ]
    check_export(MetaEncoder(Ensemble(MEMBERS), Meta({"name": "ae"}, 8, tuple(layers), normalize=False)), tmp_path)


def test_member_vectors_are_scaled_only_if_the_method_scales_them() -> None:
    views = [encoder.encode(QUERIES) for encoder in Ensemble(MEMBERS).encoders]
    np.testing.assert_array_equal(member_vectors(fitted(GCCA(dim=7)), QUERIES), np.hstack(views))
    np.testing.assert_array_equal(member_vectors(fitted(Concat()), QUERIES), np.hstack([unit_rows(v) for v in views]))
    left_out = member_vectors(fitted(Concat(weights=(1.0, 0.0, 0.3))), QUERIES)
    np.testing.assert_array_equal(left_out, np.hstack([unit_rows(views[0]), unit_rows(views[2])]))
    matrix, bias = linear_map(fitted(SVD(dim=9)).meta)
    assert (matrix.shape, bias.shape) == ((30, 9), (9,))


def test_map_that_is_not_linear_is_refused_with_the_reason() -> None:
    whitened = Ensemble(MEMBERS).fit(SENTENCES, Auto(weights=(0.7, 0.2, 0.1), whitened=(1,)))
    with pytest.raises(InputError, match=r"auto is not linear: it sends member 1 through 2 layers with 'unit' between"):
        export_index(whitened)
    with pytest.raises(InputError, match="only a meta-encoder"):
        export_index("minilm")  # type: ignore[arg-type] # it is refused


def test_map_can_precede_any_index_of_the_right_size() -> None:
    model = fitted(GCCA(dim=7))
    graph = export_index(model, faiss.IndexHNSWFlat(7, 16, faiss.METRIC_L2))
    graph.add(member_vectors(model, SENTENCES))
    distances, hits = graph.search(member_vectors(model, QUERIES), 4)
    best = -np.sort(-model.similarity(QUERIES, SENTENCES), axis=1)[:, :4]
    np.testing.assert_allclose(1 - distances / 2, best, atol=1e-5)  # of vectors of length one
    assert hits.shape == (3, 4)
    with pytest.raises(DimensionError, match="of 8 dimensions, the model gives 7"):
        export_index(model, faiss.IndexFlatIP(8))
    with pytest.raises(InputError, match="metric"):
        export_index(model, faiss.IndexFlat(7, faiss.METRIC_L1))


@pytest.fixture
def _one_core() -> Iterator[None]:
    """FAISS's threads wait for each other by spinning, which takes seconds where the cores have other work."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    yield
    faiss.omp_set_num_threads(before)


@pytest.mark.usefixtures("_one_core")
@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (FaissStore, {"kind": "hnsw"}),
        (UsearchStore, {}),
        (UsearchStore, {"dtype": "f16"}),
        (UsearchStore, {"dtype": "i8"}),
    ],
)
def test_graph_finds_over_nine_tenths_of_the_nearest(kind: Any, settings: dict[str, Any], tmp_path: Path) -> None:  # noqa: ANN401 - either class
    model = fitted(Concat())
    texts = [f"{sentence} number {i} of {i % 17}" for i in range(20) for sentence in SENTENCES]
    queries = texts[5::20]
    kind.create(tmp_path / "graph", model, **settings).close()
    with kind.open(tmp_path / "graph", model) as store:
        store.add(range(len(texts)), texts)
        store.delete(range(0, len(texts), 7))
        store.save()
    kept = [i for i in range(len(texts)) if i % 7]
    cosines = model.similarity(queries, [texts[i] for i in kept])
    best = -np.sort(-cosines, axis=1)[:, :10]
    with kind.open(tmp_path / "graph", model) as store:
        assert len(store) == len(kept)
        ids, scores = store.search(queries, k=10)
        assert not (ids % 7 == 0).any()
        rounding = 2e-2 if settings.get("dtype") == "i8" else 1e-3
        assert np.isclose(scores, best, atol=rounding).mean() > 0.9
        place = {number: j for j, number in enumerate(kept)}
        own = np.array([[cosines[row, place[n]] for n in hits] for row, hits in enumerate(ids.tolist())])
        np.testing.assert_allclose(scores, own, atol=rounding)


def test_graph_search_widens_with_k() -> None:
    texts = [f"sentence {i} about {i % 7} and {i % 11}" for i in range(1500)]
    with FaissStore.create(None, "demo?dim=32", kind="hnsw") as store:
        store.add(range(len(texts)), texts)
        hits = store.search(["sentence 3 about 3"], k=700)
    assert (hits.ids >= 0).all()
    assert len(set(hits.ids[0].tolist())) == 700
