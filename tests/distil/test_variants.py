"""Changed versions of sentences, and what a student's job makes of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from distil_cases import CORPUS, SENTENCES, TEACHER, small_plan
from hypothesis import given
from hypothesis import strategies as st

from ensembed.corpora.corpus import ListCorpus
from ensembed.distil.distillation import distil, prepare
from ensembed.distil.teacher import Teacher
from ensembed.distil.variants import variants, write_variants
from ensembed.errors import InputError
from ensembed.views import ViewStore


@given(st.lists(st.lists(st.sampled_from("abcdef"), max_size=20), max_size=8), st.integers(0, 9))
def test_every_sentence_of_three_words_has_variants_of_the_texts_own_words(
    sentences: list[list[str]], seed: int
) -> None:
    made = list(variants(sentences, 3, np.random.default_rng(seed)))
    long = [sentence for sentence in sentences if len(sentence) > 2]
    assert len(made) == 3 * len(long)
    known = {word for sentence in sentences for word in sentence}
    for i, variant in enumerate(made):
        words = variant.split(" ")
        sentence = long[i // 3]
        assert set(words) <= known
        if i % 3 != 1:  # a stretch
            assert 2 <= len(words) <= min(15, len(sentence) - 1)
            assert f" {variant} " in f" {' '.join(sentence)} "
        else:
            assert len(sentence) - 2 <= len(words) <= len(sentence)


def test_variants_depend_on_the_seed_only(tmp_path: Path) -> None:
    rows = np.array([0, 3, 7, 200])
    texts = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        write_variants(tmp_path / name, CORPUS, rows, 2, seed)
        texts.append((tmp_path / name).read_text())
    assert texts[0] == texts[1] != texts[2]
    assert len(texts[0].splitlines()) == 8


def test_variants_are_trained_on_and_never_held_out(tmp_path: Path) -> None:
    store = ViewStore(tmp_path / "store")
    plain = prepare(TEACHER, CORPUS, small_plan(tmp_path), tmp_path / "plain", store=store)
    job = prepare(TEACHER, CORPUS, small_plan(tmp_path, variants=2), tmp_path / "job", store=store)
    held, rows = job.split()
    np.testing.assert_array_equal(held, plain.split()[0])
    assert job.facts["variants"] == 2 * len(plain.split()[1]) == len(job) - len(plain)
    assert set(range(len(plain), len(job))) <= set(rows.tolist())
    np.testing.assert_array_equal(job.targets[: len(plain)], plain.targets)
    # The teacher was asked about the variants: their targets are its vectors of their texts, in the same space.
    write_variants(tmp_path / "text", CORPUS, np.delete(np.arange(len(plain)), held), 2, 0)
    taught = Teacher.of(TEACHER.encode(SENTENCES), 12)
    targets = taught.project(TEACHER.encode((tmp_path / "text").read_text().splitlines()))
    theirs = job.rows(np.arange(len(plain), len(job))).targets
    assert np.einsum("ij,ij->i", targets, theirs).min() > 0.999
    student = distil(TEACHER, CORPUS, small_plan(tmp_path, variants=2, epochs=2), tmp_path / "out", store=store)
    assert student.result["facts"]["sentences"] == len(rows)
    assert f"{job.facts['variants']:,} of them changed versions" in (tmp_path / "out" / "README.md").read_text()
    assert student.result["best"]["spearman"] > student.result["start"]["spearman"]


def test_variants_need_a_teacher_that_encodes(tmp_path: Path) -> None:
    np.save(tmp_path / "vectors.npy", TEACHER.encode(SENTENCES))
    plan, store = small_plan(tmp_path, variants=1), ViewStore(tmp_path / "store")
    seen: list[str] = []
    with pytest.raises(InputError, match="name a model, not a file of vectors"):
        distil(
            *(tmp_path / "vectors.npy", CORPUS, plan, tmp_path / "out"),
            store=store,
            progress=lambda label, _done, _total: seen.append(label),
        )
    assert not seen  # it is said before the work
    with pytest.raises(InputError, match="variants"):
        small_plan(tmp_path, variants=-1)


def test_sentences_of_two_words_have_no_variants(tmp_path: Path) -> None:
    corpus = ListCorpus([f"{first} {second}" for first in "abcdefghijkl" for second in "abcdefghijkl"])
    job = prepare(TEACHER, corpus, small_plan(tmp_path, variants=1), tmp_path / "job", store=ViewStore(tmp_path / "s"))
    assert job.facts["variants"] == 0
