"""The same figures from evaluators that share no code with ours: scipy's cosines and correlations, and mteb's tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from scipy.spatial import distance

from ensembed.encoders import Encoder, open_encoder
from ensembed.sts import PROTOCOLS, Dataset, Pairs, Protocol, evaluate
from ensembed.sts.find import find_sts

# Both of word vectors, hence quick; what an evaluation makes of vectors does not depend on where they come from.
ENCODERS = ("wordllama", "glove")
SPLITS = ("stsb-dev", "stsb-test", "stsb-train")


class RememberingEncoder:
    """Computes the vector of a sentence once, whoever asks, so that the evaluations alone can differ.

    Args:
        encoder: what computes them.
        dtype: of the vectors that are handed out.
    """

    def __init__(self, encoder: Encoder, dtype: type[np.floating[Any]] = np.float32) -> None:
        self.encoder, self.dtype, self.known = encoder, dtype, dict[str, NDArray[Any]]()

    def encode(self, sentences: list[str]) -> NDArray[Any]:
        if new := [text for text in dict.fromkeys(sentences) if text not in self.known]:
            self.known.update(zip(new, self.encoder.encode(new).astype(self.dtype), strict=True))
        return np.stack([self.known[text] for text in sentences])


class MtebModel:
    """The least that mteb takes for an encoder."""

    mteb_model_meta = None

    def __init__(self, encoder: RememberingEncoder) -> None:
        self.encoder = encoder

    def encode(self, inputs: Iterable[dict[str, list[str]]], **_options: object) -> NDArray[Any]:
        return np.vstack([self.encoder.encode(batch["text"]) for batch in inputs])

    def similarity(self, first: NDArray[Any], second: NDArray[Any]) -> NDArray[Any]:
        raise NotImplementedError

    def similarity_pairwise(self, first: NDArray[Any], second: NDArray[Any]) -> NDArray[Any]:
        """A similarity of the model's own, of which we take no figure."""
        similarity: NDArray[Any] = -np.abs(first - second).max(axis=1)
        return similarity


def by_mteb(encoder: RememberingEncoder, dataset: Dataset, task_name: str) -> list[float]:
    """Pearson and Spearman of mteb's task, with our pairs in place of those that it would fetch from the hub."""
    import datasets
    import mteb

    columns: dict[str, list[Any]] = {
        "sentence1": [text for part in dataset.parts for text in part.sentences1],
        "sentence2": [text for part in dataset.parts for text in part.sentences2],
        "score": [gold for part in dataset.parts for gold in part.scores.tolist()],
    }
    task = mteb.get_task(task_name)
    task.dataset = {"default": {"test": datasets.Dataset.from_dict(columns)}}
    task.data_loaded = True
    found = task.evaluate(MtebModel(encoder), split="test", encode_kwargs={"batch_size": 256})["default"]
    return [found["cosine_pearson"], found["cosine_spearman"]]


def by_scipy(cosines: list[float], gold: NDArray[np.float64]) -> list[float]:
    return [stats.pearsonr(cosines, gold).statistic, stats.spearmanr(cosines, gold).statistic]


def scipy_cosines(encode: Callable[[list[str]], NDArray[Any]], part: Pairs) -> list[float]:
    rows = [encode(list(texts)).astype(np.float64) for texts in (part.sentences1, part.sentences2)]
    return [1 - distance.cosine(a, b) for a, b in zip(*rows, strict=True)]


def by_us(encoder: RememberingEncoder, dataset: Dataset, protocol: Protocol) -> list[float]:
    score = evaluate(encoder, dataset, protocol).score
    return [score.pearson, score.spearman]


@pytest.fixture(params=ENCODERS)
def real(request: pytest.FixtureRequest, pulled: Callable[[str], Path]) -> Encoder:
    """A real encoder; STS-B is there, too."""
    pulled("stsb")
    pulled(request.param)
    return open_encoder(request.param)


# mteb


@pytest.mark.real
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-6), (np.float64, 1e-12)])
def test_the_benchmark_scores_as_by_mteb(real: Encoder, dtype: type[np.floating[Any]], tolerance: float) -> None:
    encoder = RememberingEncoder(real, dtype)
    for name in SPLITS:
        dataset = find_sts(name)
        # mteb computes with the numbers it gets, so float32 leaves rounding in its cosines.
        expected = by_mteb(encoder, dataset, "STSBenchmark")
        np.testing.assert_allclose(by_us(encoder, dataset, "all"), expected, rtol=0, atol=tolerance)


@pytest.mark.real
@pytest.mark.parametrize(("name", "task"), [("sts12", "STS12"), ("sts14", "STS14")])
def test_the_pooled_pairs_of_a_year_score_as_by_mteb(real: Encoder, sts_data: Path, name: str, task: str) -> None:
    encoder, dataset = RememberingEncoder(real, np.float64), find_sts(name, sts_data)
    assert len(dataset.parts) > 1
    expected = by_mteb(encoder, dataset, task)
    np.testing.assert_allclose(by_us(encoder, dataset, "all"), expected, rtol=0, atol=1e-12)
    # So does no other protocol: the test can tell them apart.
    for other in ("mean", "wmean"):
        assert np.abs(np.subtract(by_us(encoder, dataset, other), expected)).min() > 1e-3


# scipy


@pytest.mark.real
def test_the_benchmark_scores_as_by_scipy(real: Encoder) -> None:
    encoder = RememberingEncoder(real)
    for name in SPLITS:
        dataset = find_sts(name)
        (part,) = dataset.parts
        expected = by_scipy(scipy_cosines(encoder.encode, part), part.scores)
        for protocol in PROTOCOLS:  # of one part they are the same
            # Equal sentences have cosine 1 with us, and 1 or a number next to it with scipy, which breaks these ties.
            np.testing.assert_allclose(by_us(encoder, dataset, protocol), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_random_vectors_score_as_by_scipy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(10, 200, 4)
    vectors = {f"{i}": row for i, row in enumerate(rng.normal(size=(2 * sizes.sum(), 8)))}
    names = iter(vectors)

    def encode(sentences: list[str]) -> NDArray[np.float64]:
        return np.array([vectors[name] for name in sentences])

    def texts(size: int) -> tuple[str, ...]:
        return tuple(next(names) for _ in range(size))

    parts = [Pairs(f"part {j}", texts(n), texts(n), rng.integers(0, 6, n)) for j, n in enumerate(sizes)]
    cosines = [scipy_cosines(encode, part) for part in parts]
    each = [by_scipy(given, part.scores) for given, part in zip(cosines, parts, strict=True)]
    expected = {
        "mean": np.mean(each, axis=0),
        "wmean": np.average(each, axis=0, weights=sizes),
        "all": by_scipy([x for given in cosines for x in given], np.concatenate([part.scores for part in parts])),
    }
    for protocol in PROTOCOLS:
        score = evaluate(encode, Dataset("random", tuple(parts)), protocol).score
        np.testing.assert_allclose([score.pearson, score.spearman], expected[protocol], rtol=0, atol=1e-12)
