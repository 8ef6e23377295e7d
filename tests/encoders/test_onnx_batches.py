"""Which sentences run together, and that it does not show in the vectors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from make_onnx import make_onnx

from ensembed.encoders import open_encoder
from ensembed.encoders.onnx_encoder import batches


@given(
    lengths=st.lists(st.integers(0, 300), max_size=200),
    size=st.integers(1, 40),
    threads=st.integers(1, 16),
    fixed=st.sampled_from([None, 300]),
    mixed=st.booleans(),
)
def test_every_sentence_with_tokens_is_in_one_batch(
    lengths: list[int], size: int, threads: int, fixed: int | None, mixed: bool
) -> None:
    runs = batches(lengths, size=size, threads=threads, fixed=fixed, mixed=mixed)
    assert sorted(row for batch in runs for row in batch) == [row for row, n in enumerate(lengths) if n]
    assert [lengths[row] for batch in runs for row in batch] == sorted(filter(None, lengths), reverse=True)
    for batch in runs:
        assert len(batch) <= size
        assert len(batch) == 1 or len(batch) * (fixed or lengths[batch[0]]) <= 384
        assert mixed or len({lengths[row] for row in batch}) == 1


@pytest.mark.parametrize("threads", [1, 2, 16])
def test_few_sentences_are_shared_among_the_threads(threads: int) -> None:
    runs = batches([12] * 128, size=64, threads=threads, fixed=None, mixed=True)
    assert len(runs) >= min(threads, 128 * 12 // 96)
    assert max(map(len, runs)) == (8 if threads == 16 else 16 if threads == 2 else 32)


def test_a_lone_long_sentence_has_the_vector_that_it_has_among_others(tmp_path: Path) -> None:
    name = make_onnx(tmp_path)
    sentences = [" ".join(["a", "b"] * n) for n in range(1, 64)]
    together = {n: open_encoder(name, threads=n).encode(sentences) for n in (1, 2, 5)}
    for n, vectors in together.items():
        np.testing.assert_allclose(vectors, together[1], atol=1e-5)
        alone = open_encoder(name, threads=n).encode(sentences[-1:])
        np.testing.assert_allclose(alone[0], vectors[-1], atol=1e-5)
