"""Clusters: found where they are, described by their own sentences and words, the same with the same seed."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from ensembed.corpora import open_corpus
from ensembed.corpora.corpus import TextCorpus
from ensembed.encoders.base import FloatArray
from ensembed.errors import CorpusError, InputError, MissingError
from ensembed.numerics.row_matrices import unit_rows
from ensembed.search.groups import (
    choose_number,
    clusters,
    density_partition,
    distinguishing_words,
    find_clusters,
    find_duplicates,
    kmeans_partition,
)
from ensembed.search.groups.clusters import _SENTENCES
from ensembed.support.machine import data_dirs
from ensembed.views import ViewStore

NAME = "demo?dim=64&seed=1"
PETS = [f"the {a} {b} {c}" for a in ("old", "red", "big") for b in ("dog", "cat") for c in ("sleeps", "barks")]
SHARES = [f"{a} stocks {b} on {c}" for a in ("tech", "bank") for b in ("fell", "rose") for c in ("Monday", "Friday")]


def blobs(n: int, k: int, dim: int = 12, seed: int = 0) -> tuple[FloatArray, list[int]]:
    """Rows of length one around k directions, and which each belongs to."""
    random = np.random.default_rng(seed)
    centres = np.linalg.qr(random.standard_normal((dim, dim)))[0][:k]
    labels = np.arange(n) % k
    return unit_rows((centres[labels] + 0.1 * random.standard_normal((n, dim))).astype(np.float32)), labels.tolist()


def same_partition(one: list[int], other: list[int]) -> bool:
    pairs = set(zip(one, other, strict=True))
    return len(pairs) == len(set(one)) == len(set(other))


def test_kmeans_recovers_separated_clusters() -> None:
    U, labels = blobs(300, 5)
    found = kmeans_partition(U, 5)
    assert same_partition(found.labels.tolist(), labels)
    np.testing.assert_allclose(np.linalg.norm(found.centres, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(found.cosine, (U * found.centres[found.labels]).sum(axis=1), atol=1e-5)


@pytest.mark.parametrize("in_order", [False, True])
def test_kmeans_in_batches_recovers_the_same_clusters(monkeypatch: pytest.MonkeyPatch, in_order: bool) -> None:
    monkeypatch.setattr("ensembed.search.groups.clusters._SAMPLE", 100)
    monkeypatch.setattr("ensembed.search.groups.clusters._BATCH", 64)
    U, labels = blobs(1000, 5)
    if in_order:  # a batch holds one cluster, or two
        U, labels = U[np.argsort(labels, kind="stable")], sorted(labels)
    reports: list[tuple[int, int | None]] = []
    found = kmeans_partition(U, 5, progress=lambda _, done, total: reports.append((done, total)))
    assert same_partition(found.labels.tolist(), labels)
    assert reports[-1] == (1000, 1000)
    assert len(reports) > 10


def test_clusters_are_numbered_by_size() -> None:
    U, _ = blobs(300, 3)
    skewed = np.concatenate([U[0::3][:20], U[1::3][:80], U[2::3][:50]])
    assert kmeans_partition(skewed, 3).sizes.tolist() == [80, 50, 20]


def test_the_same_seed_gives_the_same_partition() -> None:
    U = unit_rows(np.random.default_rng(0).standard_normal((200, 8)).astype(np.float32))
    one, again, other = (kmeans_partition(U, 6, seed=seed).labels for seed in (1, 1, 2))
    assert (one == again).all()
    assert (one != other).any()


@pytest.mark.parametrize("k", [2, 4, 8])
def test_choose_number_finds_the_number_of_clusters(k: int) -> None:
    U, _ = blobs(400, k)
    number, silhouettes = choose_number(U)
    assert number == k
    assert max(silhouettes, key=lambda tried: silhouettes[tried]) == k


@pytest.mark.parametrize("dim", [12, 80])
def test_no_more_clusters_are_tried_than_there_are_different_vectors(dim: int) -> None:
    rows = unit_rows(np.random.default_rng(0).standard_normal((40, dim)).astype(np.float32))
    number, silhouettes = choose_number(rows[np.arange(400) % 40])
    assert number == max(silhouettes) == 32  # nearest to the true number
    with pytest.raises(InputError, match="cannot be told apart: there is one cluster; set the number"):
        choose_number(np.repeat(rows[:1], 400, axis=0))


def test_the_number_is_found_in_the_leading_directions() -> None:
    """Weak clusters in many dimensions of noise, as sentences are: of the whole vectors the silhouette finds fewer."""
    random = np.random.default_rng(0)
    centres = unit_rows(random.standard_normal((12, 384)).astype(np.float32))
    U = unit_rows(
        0.55 * centres[np.arange(500) % 12] + random.standard_normal((500, 384)).astype(np.float32) / 384**0.5
    )
    assert choose_number(U)[0] == 12


def test_words_of_a_cluster_are_no_stop_words() -> None:
    here, there = "the dogs, they don't bark and it's what we've said", "a market that's not ours but which fell"
    words = distinguishing_words([(0, here)] * 3 + [(1, there)] * 3, 2)
    assert words == [["bark", "dogs"], ["fell", "market"]]


@pytest.mark.real
def test_news_has_more_than_two_clusters(store: ViewStore, pulled: object) -> None:
    pulled("wordllama")  # type: ignore[operator]  # a fixture that is a function
    news = [path for folder in data_dirs() for path in folder.glob("corpus/leipzig_eng_news_2016_raw.txt.gz")]
    if not news:
        pytest.skip("no news: set ENSEMBED_DATA to a folder with them")
    lines = list(itertools.islice(open_corpus(news[0]), 500))
    found = find_clusters(lines, "wordllama", store=store)
    assert len(found.clusters) > 4
    assert all(cluster.sentences and cluster.words for cluster in found.clusters)
    duplicates = find_duplicates(lines, "wordllama", store=store)
    assert duplicates.is_kept.all()
    assert duplicates.candidates


def test_hdbscan_leaves_out_rows_that_belong_to_no_cluster() -> None:
    U, labels = blobs(120, 3)
    far = unit_rows(np.random.default_rng(5).standard_normal((6, 12)).astype(np.float32))
    found = density_partition(np.concatenate([U, far]), least=10)
    assert same_partition(found.labels[:120].tolist(), labels)
    assert (found.labels[120:] == -1).sum() >= 4
    assert found.sizes.tolist()[0] >= 40
    assert len(found.centres) == 3


def test_hdbscan_may_find_no_cluster() -> None:
    U = unit_rows(np.random.default_rng(0).standard_normal((60, 30)).astype(np.float32))
    found = density_partition(U, least=20)
    assert (found.labels == -1).all()
    assert found.centres.shape == (0, 30)


def test_find_clusters_groups_sentences_by_subject(store: ViewStore) -> None:
    found = find_clusters([*PETS, *SHARES, *PETS[:3]], NAME, clusters=2, store=store)
    assert found.labels.tolist() == [0] * 12 + [1] * 8 + [0] * 3
    pets, shares = found.clusters
    assert (pets.size, shares.size) == (15, 8)
    assert {"dog", "cat"} <= set(pets.words)
    assert "stocks" in shares.words
    assert not {"the", "on"} & {*pets.words, *shares.words}
    assert len({text for _, _, text in pets.sentences}) == 3
    for one in found.clusters:
        cosines = [cosine for _, cosine, _ in one.sentences]
        assert cosines == sorted(cosines, reverse=True)
        own = found.labels == one.number
        assert cosines[0] == pytest.approx(found.cosine[own].max(), abs=1e-5)
        for row, cosine, text in one.sentences:
            assert text == [*PETS, *SHARES][row]
            assert cosine == pytest.approx(found.cosine[row], abs=1e-5)


def test_find_clusters_chooses_the_number_if_none_is_given(store: ViewStore) -> None:
    found = find_clusters([*PETS, *SHARES], NAME, store=store)
    assert len(found.clusters) == max(found.silhouettes, key=lambda k: found.silhouettes[k])


def test_records_are_in_the_order_of_the_file(store: ViewStore, tmp_path: Path) -> None:
    path = tmp_path / "texts.txt"
    path.write_text("\n".join([*PETS, "", *SHARES]))
    found = find_clusters(path, NAME, clusters=2, store=store)
    records = list(found.records())
    assert [one["text"] for one in records] == [*PETS, *SHARES]
    assert [one["row"] for one in records] == list(range(20))
    assert [one["cluster"] for one in records] == found.labels.tolist()


def test_find_clusters_refuses_a_file_that_changes(store: ViewStore, tmp_path: Path) -> None:
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(PETS))
    found = find_clusters(TextCorpus(path), NAME, clusters=2, store=store)
    path.write_text("\n".join([*PETS, "more"]))
    with pytest.raises(CorpusError, match="changed while"):
        list(found.records())


def test_find_clusters_with_hdbscan(store: ViewStore) -> None:
    found = find_clusters([*PETS, *SHARES], NAME, method="hdbscan", least=4, store=store)
    for row, label in enumerate(found.labels.tolist()):
        assert label == -1 or (label == found.labels[0]) == (row < 12)
    assert found.silhouettes == {}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"clusters": 0}, "clusters must be a whole number of at least 1"),
        ({"clusters": 21}, "20 distinct sentences cannot make 21 clusters"),
        ({"method": "agglomerative"}, "'kmeans' or 'hdbscan'"),
        ({"method": "hdbscan", "clusters": 2}, "hdbscan finds the number"),
        ({"method": "hdbscan", "least": 11}, "no two clusters of 11"),
        ({"representatives": 0}, "representatives"),
        ({"seed": -1}, "seed"),
        ({"sentences": []}, "no sentence"),
        ({"sentences": ["one", "two"]}, "2 distinct sentences are too few"),
        ({"sentences": ["a b", "b a", "a  b"], "clusters": 2}, "fewer than 2 different vectors"),
    ],
)
def test_find_clusters_refuses_bad_arguments(store: ViewStore, change: dict[str, object], says: str) -> None:
    arguments: dict[str, object] = {"sentences": [*PETS, *SHARES]} | change
    sentences = arguments.pop("sentences")
    with pytest.raises(InputError, match=says):
        find_clusters(sentences, NAME, store=store, **arguments)  # type: ignore[arg-type]  # wrong ones on purpose


def test_hdbscan_refuses_too_many_rows() -> None:
    with pytest.raises(InputError, match="at most 20000 sentences, not 20001: use kmeans"):
        density_partition(np.zeros((20_001, 1), np.float32))


def test_without_scikit_learn_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib

    def absent(name: str) -> object:
        raise ModuleNotFoundError(name=name)

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(MissingError, match=r"pip install 'ensembed\[cluster\]'"):
        kmeans_partition(blobs(20, 2)[0], 2)
    monkeypatch.setattr(clusters, "model_vectors", lambda *_, **__: pytest.fail("the work was done first"))
    with pytest.raises(MissingError, match=r"pip install 'ensembed\[cluster\]'"):
        find_clusters([*PETS, *SHARES], NAME)


def test_too_many_sentences_for_hdbscan_are_not_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "MOST_DENSITY", 19)
    monkeypatch.setattr(clusters, "model_vectors", lambda *_, **__: pytest.fail("the work was done first"))
    with pytest.raises(InputError, match="at most 19 sentences, not 20: use kmeans"):
        find_clusters([*PETS, *SHARES], NAME, method="hdbscan")


def test_words_ignore_rows_without_cluster_and_rare_words() -> None:
    said = distinguishing_words([(0, "x y1 rare dog"), (0, "a dog"), (1, "a cat"), (1, "cat"), (-1, "bird bird")], 3)
    assert said == [["dog"], ["cat"], []]
    assert distinguishing_words([(0, "a dog"), (0, "a dog")], 1, most=0) == [[]]


def test_words_of_large_clusters_come_from_a_sample(store: ViewStore) -> None:
    texts = [f"{animal} number {i}" for i in range(_SENTENCES + 200) for animal in ("dog", "stock")]
    found = find_clusters(texts, NAME, clusters=2, store=ViewStore(store.root, shard_rows=4096))
    assert {one.words[0] for one in found.clusters} == {"dog", "stock"}
