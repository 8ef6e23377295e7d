"""Near-duplicate groups: exact, never chained, and the same however they are computed."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensembed import Ensemble
from ensembed.corpora.corpus import ListCorpus
from ensembed.encoders import open_encoder
from ensembed.encoders.base import FloatArray
from ensembed.errors import CorpusError, InputError, SentenceError, StoreError, ViewError
from ensembed.methods import SVD
from ensembed.numerics.row_matrices import unit_rows
from ensembed.search.groups import duplicates, find_duplicates, star_groups, write_groups, write_kept
from ensembed.search.groups.group_rows import unit_matrix
from ensembed.support.progress import Progress
from ensembed.views import ViewStore

NAME = "demo?dim=128&seed=1"
TEXTS = [
    "A dog runs in the park.",
    "Stocks fell on Monday.",
    "a dog runs in the park",
    "A dog runs in the park.",
    "Stocks fell on Monday, traders said.",
    "the park in a dog runs",
    "Nothing like the others at all",
]


def obvious(U: FloatArray, threshold: float) -> list[int]:
    """The groups as they are defined, a row at a time."""
    C = U @ U.T
    leaders: list[int] = []
    for i in range(len(U)):
        if all(C[i, j] < threshold for j in leaders):
            leaders.append(i)
    return [i if i in leaders else max(leaders, key=lambda j: C[i, j]) for i in range(len(U))]


def crowded(n: int, seed: int) -> FloatArray:
    """Rows of length one around a few directions."""
    random = np.random.default_rng(seed)
    around = random.standard_normal((max(n // 4, 1), 6))
    return unit_rows((around[random.integers(len(around), size=n)] + 0.3 * random.standard_normal((n, 6))).astype("f4"))


@given(n=st.integers(1, 60), seed=st.integers(0, 10**6), threshold=st.floats(0.1, 0.99), tile=st.integers(1, 70))
def test_star_groups_equal_their_definition_for_any_block_size(n: int, seed: int, threshold: float, tile: int) -> None:
    U = crowded(n, seed)
    C = U @ U.T
    if np.abs(C - threshold).min() < 1e-5:
        return  # rounding decides
    before, duplicates._TILE = duplicates._TILE, tile
    try:
        of, cosine = star_groups(U, threshold)
    finally:
        duplicates._TILE = before
    assert of.tolist() == obvious(U, threshold)
    np.testing.assert_allclose(cosine, C[np.arange(n), of], atol=1e-5)


@given(n=st.integers(2, 80), seed=st.integers(0, 10**6), threshold=st.floats(0.2, 0.98))
def test_star_groups_keep_their_bounds_on_cosines(n: int, seed: int, threshold: float) -> None:
    U = crowded(n, seed)
    of, cosine = star_groups(U, threshold)
    kept = np.flatnonzero(of == np.arange(n))
    assert (of[of] == of).all()  # who stands for others stands for itself
    assert (cosine >= threshold - 1e-5).all()
    among = U[kept] @ U[kept].T
    np.fill_diagonal(among, 0)
    assert (among < threshold + 1e-5).all()


def test_a_chain_is_not_one_group() -> None:
    angles = np.arange(10) * 0.3  # neighbours have a cosine of 0.955, the ends one of -0.9
    U = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    of, _ = star_groups(U, 0.95)
    assert len(set(of.tolist())) >= 4
    assert (np.abs(of - np.arange(10)) <= 1).all()


def test_all_pairs_are_never_in_memory() -> None:
    U = unit_rows(np.random.default_rng(0).standard_normal((20_000, 8)).astype(np.float32))
    tracemalloc.start()
    try:
        star_groups(U, 0.9)
        assert tracemalloc.get_traced_memory()[1] < 100e6  # 20,000 times 20,000 cosines would be 1.6 GB
    finally:
        tracemalloc.stop()


def test_zero_rows_are_duplicates_of_nothing() -> None:
    U = np.zeros((3, 4), np.float32)
    assert star_groups(U, 0.5)[0].tolist() == [0, 1, 2]


def test_find_duplicates_groups_sentences_and_exact_repeats(store: ViewStore) -> None:
    found = find_duplicates(TEXTS, NAME, threshold=0.7, store=store)
    assert [rows.tolist() for rows in found.groups] == [[0, 2, 3, 5], [1, 4]]
    assert found.kept.tolist() == [0, 1, 0, 0, 1, 0, 6]
    assert found.repeats == 1
    assert found.cosine[[0, 3]].tolist() == [1, 1]
    assert found.is_kept.tolist() == [True, True, False, False, False, False, True]


def test_keep_longest_represents_a_group_by_its_longest_sentence(store: ViewStore) -> None:
    found = find_duplicates(TEXTS, NAME, threshold=0.7, keep="longest", store=store)
    assert found.kept.tolist() == [0, 4, 0, 0, 4, 0, 6]
    kept = io.StringIO()
    assert write_kept(found, kept) == 3
    assert kept.getvalue().splitlines() == [TEXTS[0], TEXTS[4], TEXTS[6]]


def test_a_threshold_of_one_finds_all_equal_vectors(store: ViewStore) -> None:
    lower = [f"the dog {i} and the cat {7 * i}" for i in range(60)]
    found = find_duplicates([*lower, *map(str.upper, lower)], NAME, threshold=1, store=store)  # demo ignores the case
    assert [rows.tolist() for rows in found.groups] == [[i, i + 60] for i in range(60)]


def test_a_path_a_list_and_a_corpus_give_the_same_groups(store: ViewStore, tmp_path: Path) -> None:
    path = tmp_path / "texts.txt"
    path.write_text("\n\n".join(TEXTS))  # blank lines are no rows
    for sentences in (path, TEXTS, ListCorpus(TEXTS)):
        assert find_duplicates(sentences, NAME, threshold=0.7, store=store).kept.tolist() == [0, 1, 0, 0, 1, 0, 6]


def test_find_duplicates_reuses_the_stored_views_of_a_models_members(store: ViewStore) -> None:
    names = ["demo?dim=16&seed=1", "demo?dim=12&seed=2"]
    model = Ensemble(names).fit(TEXTS, SVD(dim=4), store=store)
    found = find_duplicates(TEXTS, model, threshold=0.9, store=store)
    assert len(list(store.root.glob("*/*/manifest.json"))) == 2  # nothing was encoded again
    U = unit_rows(model.encode(TEXTS))
    for row, kept in enumerate(found.kept.tolist()):
        assert found.cosine[row] == pytest.approx(U[row] @ U[kept], abs=1e-5)


def test_exact_repeats_are_not_compared(store: ViewStore, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []

    def counted(U: FloatArray, threshold: float, progress: Progress) -> object:
        sizes.append(len(U))
        return star_groups(U, threshold, progress=progress)

    monkeypatch.setattr("ensembed.search.groups.duplicates.star_groups", counted)
    found = find_duplicates(TEXTS[:2] * 50, NAME, threshold=0.9, store=store)
    assert sizes == [2]
    assert [len(rows) for rows in found.groups] == [50, 50]


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_write_groups_writes_every_row_of_every_group(
    store: ViewStore, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duplicates, "_SENTENCES", 4)  # so that the corpus is read twice
    texts = [*TEXTS, 'Quotes "and", commas', 'quotes "and" commas']
    found = find_duplicates(texts, NAME, threshold=0.7, store=store)
    file = io.StringIO()
    assert write_groups(found, file, form) == 8
    lines = file.getvalue().splitlines()
    records = list(csv.DictReader(lines)) if form == "csv" else [json.loads(line) for line in lines]
    assert [int(one["group"]) for one in records] == [0, 0, 0, 0, 1, 1, 2, 2]
    assert [one["text"] for one in records] == [texts[int(one["row"])] for one in records]
    assert [int(one["row"]) for one in records if int(one["kept"])] == [0, 1, 7]
    assert all(0.7 <= float(one["cosine"]) <= 1 for one in records)


def test_write_kept_refuses_a_sentence_of_two_lines(store: ViewStore) -> None:
    found = find_duplicates(["one", "two\nlines"], NAME, threshold=0.9, store=store)
    with pytest.raises(InputError, match="row 1 holds a line break"):
        write_kept(found, io.StringIO())


def test_write_groups_refuses_a_file_that_changed(store: ViewStore, tmp_path: Path) -> None:
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(TEXTS))
    found = find_duplicates(path, NAME, threshold=0.7, store=store)
    path.write_text("\n".join([*TEXTS, "more"]))
    with pytest.raises(CorpusError, match="changed while"):
        write_groups(found, io.StringIO(), "csv")


def test_sentences_without_duplicates_make_no_groups(store: ViewStore) -> None:
    assert find_duplicates(["alone"], NAME, threshold=0.5, store=store).groups == []
    found = find_duplicates(["one", "two"], NAME, threshold=1.0, store=store)
    file = io.StringIO()
    assert write_groups(found, file, "csv") == 0
    assert file.getvalue() == "group,row,kept,cosine,text\n"


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"threshold": 0.0}, InputError, "above 0 and at most 1, not 0"),
        ({"threshold": 1.5}, InputError, "not 1.5"),
        ({"threshold": float("nan")}, InputError, "not nan"),
        ({"keep": "last"}, InputError, "'first' or 'longest', not 'last'"),
        ({"threshold": None}, InputError, "6 distinct sentences are too few"),
        ({"sentences": []}, CorpusError, "no sentence"),
        ({"sentences": [" ", ""]}, CorpusError, "no sentence"),
        ({"sentences": ["a", 3]}, SentenceError, "sentence 1 is not a string"),
    ],
)
def test_find_duplicates_refuses_bad_arguments(
    store: ViewStore, change: dict[str, object], error: type[Exception], says: str
) -> None:
    arguments: dict[str, object] = {"sentences": TEXTS, "threshold": 0.7, "keep": "first"} | change
    sentences = arguments.pop("sentences")
    with pytest.raises(error, match=says):
        find_duplicates(sentences, NAME, store=store, **arguments)  # type: ignore[arg-type]  # wrong ones on purpose


def test_large_matrices_are_temporary_files(monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.random.default_rng(0).standard_normal((9000, 4)).astype(np.float32)
    order = np.random.default_rng(1).permutation(9000)[:5000]
    monkeypatch.setattr("ensembed.search.groups.group_rows._IN_MEMORY", 0)
    with unit_matrix(X, order) as U:
        assert isinstance(U, np.memmap)
        assert Path(str(U.filename)).exists()
        path = Path(str(U.filename))
        np.testing.assert_allclose(U, unit_rows(X[order]), atol=1e-6)
        assert star_groups(U[:300], 0.99)[0].tolist() == star_groups(unit_rows(X[order])[:300], 0.99)[0].tolist()
    assert not path.exists()


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="this system takes room when it is written to")
def test_a_full_disk_raises_before_anything_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int, _offset: int, _length: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("ensembed.search.groups.group_rows._IN_MEMORY", 0)
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(StoreError, match="No space left on device; set TMPDIR"), unit_matrix(np.ones((9, 2))):
        pass


def test_unit_matrix_names_a_row_with_nan() -> None:
    X = np.ones((5, 2))
    X[3, 1] = np.nan
    with pytest.raises(ViewError, match="row 3"), unit_matrix(X):
        pass


@pytest.mark.real
def test_a_real_encoder_groups_paraphrases(store: ViewStore, pulled: object) -> None:
    pulled("minilm")  # type: ignore[operator]  # a fixture that is a function
    texts = ["A man is playing a guitar.", "Shares fell sharply on Monday.", "A man plays the guitar."]
    found = find_duplicates(texts, open_encoder("minilm"), threshold=0.75, store=store)
    assert [rows.tolist() for rows in found.groups] == [[0, 2]]


def test_without_labels_only_near_identical_texts_are_duplicates(store: ViewStore) -> None:
    random = np.random.default_rng(0)
    words = [f"word{i}" for i in range(2000)]
    texts = [" ".join(random.choice(words, 30)) for _ in range(300)]
    slip = texts[5].replace("word", "Word", 3) + "!"
    related = " ".join([*texts[7].split()[:20], *random.choice(words, 10)])
    found = find_duplicates([*texts, slip, related], NAME, store=store)
    assert [rows.tolist() for rows in found.groups] == [[5, 300]]
    threshold = found.threshold
    assert threshold.value == threshold.near_identical
    assert threshold.candidates_from is not None
    assert found.candidates[0][:2] == (7, 301)
    assert all(threshold.candidates_from <= cosine < threshold.value for _, _, cosine in found.candidates)
    assert found.to_json(1)["candidates"][0]["pair"][1]["text"] == related
    assert not find_duplicates([*texts, related], NAME, threshold=0.99, store=store).candidates


def test_candidates_are_of_sentences_that_stay(store: ViewStore) -> None:
    random = np.random.default_rng(0)
    words = [f"word{i}" for i in range(2000)]
    texts = [" ".join(random.choice(words, 30)) for _ in range(300)]
    related = " ".join([*texts[7].split()[:20], *random.choice(words, 10)])
    slips = [text.replace("word", "Word", 3) + "!" for text in (texts[7], related)]
    found = find_duplicates([*texts, related, *slips], NAME, store=store)
    assert [rows.tolist() for rows in found.groups] == [[7, 301], [300, 302]]
    named = [row for *pair, _ in found.candidates for row in pair]
    assert found.is_kept[named].all()
    assert found.candidates[0][:2] == (7, 300)
