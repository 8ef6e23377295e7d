"""Correlations against slow oracles and scipy, the three protocols, the evaluation loop, the paper's figures."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from scipy import stats

from ensembed.errors import DatasetError, EncoderError, InputError
from ensembed.paper import published as paper
from ensembed.sts import (
    PARTS,
    PROTOCOLS,
    Dataset,
    Pairs,
    Protocol,
    Score,
    aggregate,
    cosine,
    distinct_sentences,
    evaluate,
    evaluate_all,
    pearson,
    predict,
    score,
    spearman,
)

# Few distinct values, so that ties are common, and any values.
VALUES = st.one_of(st.sampled_from([0.0, 1.0, 2.5]), st.floats(-1e3, 1e3, allow_subnormal=False))
COLUMNS = st.lists(st.tuples(VALUES, VALUES), min_size=2, max_size=40)


def slow_pearson(x: list[float], y: list[float]) -> float:
    mx, my = math.fsum(x) / len(x), math.fsum(y) / len(y)
    xy = math.fsum((a - mx) * (b - my) for a, b in zip(x, y, strict=True))
    return xy / math.sqrt(math.fsum((a - mx) ** 2 for a in x) * math.fsum((b - my) ** 2 for b in y))


def slow_ranks(x: list[float]) -> list[float]:
    """The rank of a value: how many are below it, and half of those it is equal to."""
    return [sum(b < a for b in x) + (sum(b == a for b in x) + 1) / 2 for a in x]


def columns(rows: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    x, y = [list(column) for column in zip(*rows, strict=True)]
    for values in (x, y):
        assume(max(values) - min(values) > 1e-6 * max(map(abs, values)) + 1e-100)
    return x, y


# Correlations


@given(COLUMNS)
@example([(0.0, 1.0), (0.0, 2.0), (1.0, 3.0)])
def test_correlations_equal_the_oracles(rows: list[tuple[float, float]]) -> None:
    x, y = columns(rows)
    assert pearson(x, y) == pytest.approx(slow_pearson(x, y), abs=1e-7)
    assert spearman(x, y) == pytest.approx(slow_pearson(slow_ranks(x), slow_ranks(y)), abs=1e-12)
    assert -1 <= pearson(x, y) <= 1
    assert pearson(x, y) == pytest.approx(pearson(y, x), abs=1e-12)
    assert spearman(x, y) == pytest.approx(spearman(y, x), abs=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_correlations_equal_scipy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(2, 500))
    y = np.round(x + y, 1)
    assert pearson(x, y) == pytest.approx(stats.pearsonr(x, y).statistic, abs=1e-13)
    assert spearman(x, y) == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-13)


@pytest.mark.parametrize("scale", [1e-320, 1e-300, 1e-160, 1e160, 1e307])
def test_correlations_of_huge_and_tiny_values(scale: float) -> None:
    x, y = np.array([-3.0, 1.0, 4.0, 1.0, -5.0]), np.array([2.0, 7.0, 1.0, 8.0, 2.0])
    tolerance = 1e-3 if scale == 1e-320 else 1e-12  # subnormal numbers have few digits
    assert pearson(x * scale, y) == pytest.approx(pearson(x, y), abs=tolerance)
    assert pearson(y, x * scale) == pytest.approx(pearson(x, y), abs=tolerance)
    assert spearman(x * scale, y) == spearman(x, y)


def test_perfect_correlations() -> None:
    x = np.arange(10.0)
    assert pearson(x, 3 * x + 1) == pytest.approx(1.0, abs=1e-15)
    assert spearman(x, np.exp(x)) == 1.0
    assert spearman(x, -np.exp(x)) == -1.0
    assert pearson(np.array([0, 1], np.float32), [0, 2]) == 1.0


@pytest.mark.parametrize("correlation", [pearson, spearman])
def test_undefined_correlations(correlation: Any) -> None:  # noqa: ANN401 - either function
    with pytest.raises(DatasetError, match=r"all 3 gold scores are 2\.5"):
        correlation([1, 2, 3], [2.5, 2.5, 2.5])
    with pytest.raises(DatasetError, match="at least two pairs, got 1"):
        correlation([1], [1])
    with pytest.raises(DatasetError, match="at least two pairs, got 0"):
        correlation([], [])
    assert correlation([0.3, 0.3, 0.3], [1, 2, 3]) == 0.0
    assert correlation([0, 0, 0], [1, 2, 3]) == 0.0
    assert correlation([1.0, 1.0 - 2**-53, 1.0], [1, 2, 3]) == 0.0, "rounding is no information"
    with pytest.raises(InputError, match="prediction 1 is nan"):
        correlation([1, np.nan, 3], [1, 2, 3])
    with pytest.raises(InputError, match="gold score 2 is inf"):
        correlation([1, 2, 3], [1, 2, np.inf])
    with pytest.raises(InputError, match=r"shapes \(3,\) and \(2,\)"):
        correlation([1, 2, 3], [1, 2])
    with pytest.raises(InputError, match="same length"):
        correlation(np.eye(2), np.eye(2))


# Cosine


@given(arrays(np.float32, (2, 5, 3), elements=st.floats(-1e3, 1e3, width=32)))
def test_cosine_equals_the_oracle(pair: NDArray[np.float32]) -> None:
    A, B = pair
    result = cosine(A, B)
    assert result.dtype == np.float64
    for value, a, b in zip(result, A.tolist(), B.tolist(), strict=True):
        lengths = math.hypot(*a) * math.hypot(*b)
        dot = math.fsum(x * y for x, y in zip(a, b, strict=True))
        assert value == pytest.approx(dot / lengths if lengths else 0.0, abs=1e-12)
    assert np.array_equal(cosine(A, A), np.any(A != 0, axis=1).astype(float)), "equal rows are exact ties"
    assert np.array_equal(result, np.concatenate([cosine(A[i : i + 1], B[i : i + 1]) for i in range(5)]))


def test_cosine_of_many_rows_in_any_memory_order() -> None:
    A, B = np.random.default_rng(0).normal(size=(2, 2500, 17))
    expected = (A * B).sum(1) / np.linalg.norm(A, axis=1) / np.linalg.norm(B, axis=1)
    np.testing.assert_allclose(cosine(A, B), expected, atol=1e-14)
    assert np.array_equal(cosine(np.asfortranarray(A), B), cosine(A, B))
    assert np.array_equal(cosine(A, A), np.ones(2500))


def test_cosine_extremes() -> None:
    huge, tiny = np.array([[1e200, 1e200]]), np.array([[1e-320, 0.0]])
    assert cosine(huge, tiny) == pytest.approx([math.sqrt(0.5)], abs=1e-12)
    assert cosine([[0, 0], [1, 2]], [[1, 1], [-1, -2]]).tolist() == [0.0, -1.0]
    assert cosine(np.zeros((2, 0)), np.zeros((2, 0))).tolist() == [0.0, 0.0]
    assert cosine(np.zeros((0, 3)), np.zeros((0, 3))).shape == (0,)
    with pytest.raises(InputError, match=r"\(2, 3\) and \(2, 4\)"):
        cosine(np.ones((2, 3)), np.ones((2, 4)))
    with pytest.raises(InputError, match=r"\[n, d\]"):
        cosine(np.ones(3), np.ones(3))
    bad = np.ones((1500, 2))
    bad[1200, 1] = np.inf
    with pytest.raises(InputError, match="row 1200 holds NaN or Inf"):
        cosine(np.ones((1500, 2)), bad)


# Protocols


def toy() -> tuple[Dataset, list[NDArray[np.float64]]]:
    rng = np.random.default_rng(3)
    parts, predictions = [], []
    for name, n in (("small", 5), ("large", 50), ("middle", 20)):
        texts = tuple(f"{name} {i}" for i in range(n))
        parts.append(Pairs(name, texts, texts[::-1], rng.integers(0, 6, n).astype(float)))
        predictions.append(parts[-1].scores * rng.normal(1, 0.5, n) + 10 * len(parts))
    return Dataset("toy", tuple(parts), ("absent",), "tsv"), predictions


def test_protocols() -> None:
    dataset, made = toy()
    each = [(pearson(x, part.scores), spearman(x, part.scores)) for x, part in zip(made, dataset.parts, strict=True)]
    assert aggregate(made, dataset) == aggregate(made, dataset, "mean")
    mean, wmean, pooled = (aggregate(made, dataset, protocol) for protocol in PROTOCOLS)
    for i, metric in enumerate(("pearson", "spearman")):
        small, large, middle = (pair[i] for pair in each)
        assert getattr(mean, metric) == pytest.approx((small + large + middle) / 3)
        assert getattr(wmean, metric) == pytest.approx((5 * small + 50 * large + 20 * middle) / 75)
    x, y = np.concatenate(made), np.concatenate([part.scores for part in dataset.parts])
    assert pooled == Score(pearson(x, y), spearman(x, y))
    assert pooled.pearson < mean.pearson, "the parts are shifted against each other"


def test_one_part_is_the_same_in_every_protocol() -> None:
    dataset, made = toy()
    one = Dataset.of(dataset.parts[1])
    scores = [aggregate(made[1:2], one, protocol) for protocol in PROTOCOLS]
    assert scores[0] == scores[2]
    assert scores[1].to_json() == pytest.approx(scores[0].to_json(), abs=1e-15)


def test_result_and_its_json() -> None:
    dataset, made = toy()
    result = score(made, dataset, "wmean")
    assert result.score == aggregate(made, dataset, "wmean")
    assert result.pairs == 75
    data = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert {key: data[key] for key in ("dataset", "layout", "protocol", "pairs", "missing")} == {
        "dataset": "toy",
        "layout": "tsv",
        "protocol": "wmean",
        "pairs": 75,
        "missing": ["absent"],
    }
    assert data["fingerprint"] == dataset.fingerprint
    assert data["pearson"] == result.score.pearson
    assert [(part["name"], part["pairs"]) for part in data["parts"]] == [("small", 5), ("large", 50), ("middle", 20)]
    assert data["parts"][0]["spearman"] == spearman(made[0], dataset.parts[0].scores)
    assert not data["parts"][0]["constant_predictions"]
    assert str(Score(0.7284, -0.05)) == "72.8/-5.0"


def test_predictions_that_do_not_fit() -> None:
    dataset, made = toy()
    for bad in (made[:2], [made[0][1:], *made[1:]]):
        with pytest.raises(InputError, match=r"predictions for toy should be arrays of shapes \[\(5,\), \(50,\)"):
            aggregate(bad, dataset)
    with pytest.raises(InputError, match="no protocol 'max'; choose one of mean, wmean, all"):
        aggregate(made, dataset, "max")  # type: ignore[arg-type] # it is refused
    with pytest.raises(InputError, match=r"^toy/large: prediction 0 is nan"):
        aggregate([made[0], made[1] * np.nan, made[2]], dataset)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_constant_or_tiny_parts(protocol: Protocol) -> None:
    dataset, made = toy()
    result = score([np.full(5, 0.5), *made[1:]], dataset, protocol)
    assert result.parts[0].score == Score(0.0, 0.0)
    assert [part.constant for part in result.parts] == [True, False, False]
    flat = Pairs("flat", ("a", "b"), ("c", "d"), np.array([1.0, 1.0]))
    with pytest.raises(DatasetError, match="toy/flat: all 2 gold scores are 1"):
        score([*made, np.array([1.0, 2.0])], Dataset("toy", (*dataset.parts, flat)), protocol)
    one = Dataset.of(Pairs("one", ("a",), ("c",), np.array([1.0])))
    with pytest.raises(DatasetError, match=r"one.*: a correlation needs at least two pairs, got 1"):
        score([np.array([1.0])], one, protocol)


# Evaluation


class Letters:
    """Counts letters, and remembers what it was asked."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def encode(self, sentences: list[str]) -> list[list[int]]:
        self.calls.append(sentences)
        return [[text.count(letter) for letter in "abcde"] for text in sentences]

    def __call__(self, sentences: list[str]) -> None:
        raise NotImplementedError("torch modules are callable, on something else")


class GpuTensor:
    """What torch says when it is asked for an array of what is on a GPU."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:  # noqa: ANN401 - numpy's own
        raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first")


def letters_sets() -> list[Dataset]:
    one = Pairs("one", ("a", "ab", "abc", ""), ("a", "ac", "de", "a"), np.array([5.0, 3.0, 0.0, 1.0]))
    two = Pairs("two", ("ab", "b", "cc"), ("a", "b", "abc"), np.array([3.0, 5.0, 2.0]))
    return [Dataset("first", (one, two)), Dataset("second", (two,))]


def test_each_distinct_sentence_is_encoded_once_for_all_sets() -> None:
    letters, sets = Letters(), letters_sets()
    results = evaluate_all(letters, sets, "mean")
    assert letters.calls == [["a", "ab", "abc", "", "ac", "de", "b", "cc"]] == [distinct_sentences(sets)]
    assert [result.dataset for result in results] == ["first", "second"]
    expected = predict(letters, sets)
    assert expected[0][0].tolist() == pytest.approx([1, 0.5, 0, 0])
    assert results == [score(made, dataset) for made, dataset in zip(expected, sets, strict=True)]
    assert evaluate(letters, sets[1]) == results[1]
    assert evaluate(letters.encode, sets[1], "all").protocol == "all"
    assert evaluate_all(letters, []) == []
    assert len(letters.calls) == 4, "no call for no data set"


def test_an_encoder_may_return_any_kind_of_array() -> None:
    letters, sets = Letters(), letters_sets()
    expected = evaluate_all(letters, sets)
    for dtype in (np.float16, np.float32, np.float64, np.int8):

        def encode(texts: list[str], dtype: type = dtype) -> NDArray[Any]:
            return np.array(letters.encode(texts), dtype)

        assert evaluate_all(encode, sets) == expected


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (lambda texts: np.ones((len(texts) - 1, 3)), r"shape \(7, 3\) for 8 sentences"),
        (lambda texts: np.ones(len(texts)), r"shape \(8,\)"),
        (lambda texts: [["x"]] * len(texts), "<U1"),
        (lambda texts: np.ones((len(texts), 2), complex), "complex128"),
        (lambda texts: [[1.0]] * (len(texts) - 1) + [[1.0, 2.0]], "list that is no array"),
        (lambda _: GpuTensor(), r"GpuTensor that is no array: .*cpu\(\)"),
        (
            lambda texts: [[1.0, np.nan if text == "abc" else 0.0] for text in texts],
            "NaN or Inf for the sentence 'abc'",
        ),
    ],
)
def test_encoders_that_fail_are_named(returned: Any, message: str) -> None:  # noqa: ANN401 - wrong on purpose
    class Broken:
        encode = staticmethod(returned)

    with pytest.raises(EncoderError, match=message) as caught:
        evaluate_all(Broken(), letters_sets())
    assert "'Broken'" in str(caught.value)


def test_evaluate_refuses_what_is_no_encoder() -> None:
    for bad in ("minilm", 3):
        with pytest.raises(InputError, match="expected an encoder or a function"):
            evaluate(bad, letters_sets()[0])  # type: ignore[arg-type] # it is refused
    letters = Letters()
    with pytest.raises(InputError, match="no protocol 'median'"):
        evaluate_all(letters, letters_sets(), "median")  # type: ignore[arg-type] # it is refused
    assert not letters.calls, "found before the encoding"


def test_error_of_an_encoder_names_it() -> None:
    def fail(_: list[str]) -> None:
        raise ConnectionError("refused")

    with pytest.raises(EncoderError, match=r"encoder 'fail' failed: ConnectionError\('refused'\)") as caught:
        evaluate(fail, letters_sets()[0])
    assert isinstance(caught.value.__cause__, ConnectionError)


# The paper


def test_table_2() -> None:
    rows = {row.key: row for row in paper.table2()}
    assert len(rows) == 17
    gcca = rows["meta:gcca"]
    assert (gcca.kind, gcca.dim, gcca.figures["stsb"]) == ("meta", 1024, paper.Printed(83.9, 84.4))
    assert rows["literature:reimers2019sentence"].figures["stsb"] == paper.Printed(None, 86.2)
    assert rows["literature:raffel2019exploring"].kind == "supervised SoTA"
    assert "Table 8" in rows["literature:hassan2019uests"].note
    assert all(list(row.figures) == [*PARTS, "stsb"] for row in rows.values())
    assert "ACL 2020" in paper.CITATION


def test_table_2_is_the_mean_of_the_appendix() -> None:
    """To the rounding of both, with one exception that is in the paper itself: gcca on STS15."""
    differ = set()
    for row in paper.table2():
        method = row.key.partition(":")[2]
        if row.kind not in ("single", "meta") or "up-projection" in method:
            continue
        for name, parts in PARTS.items():
            assert tuple(paper.appendix(method, name)) == parts
            mean = paper.mean_over(method, name, parts)
            for metric in ("pearson", "spearman"):
                if abs(getattr(mean, metric) - getattr(row.figures[name], metric)) > 0.0551:
                    differ.add((method, name, metric))
    assert differ == {("gcca", "sts15", "spearman")}


def test_appendix_without_smt() -> None:
    assert paper.appendix("gcca", "sts13")["SMT"] == paper.Printed(49.20, 46.01)
    assert paper.mean_over("gcca", "sts13", ["FNWN", "OnWN", "headlines"]).pearson == pytest.approx(76.4533, abs=1e-3)
    with pytest.raises(InputError, match="called 'bert'; choose one of ParaNMT"):
        paper.appendix("bert", "sts13")
    with pytest.raises(InputError, match="called 'stsb'; choose one of sts12"):
        paper.appendix("gcca", "stsb")
    with pytest.raises(InputError, match="called 'images'; choose one of FNWN"):
        paper.mean_over("gcca", "sts13", ["images"])
    with pytest.raises(InputError, match="no mean"):
        paper.mean_over("gcca", "sts13", [])


def test_tables_1_and_3() -> None:
    best = max(paper.table1_gcca().items(), key=lambda item: item[1].spearman or 0)
    assert best == ("10", paper.Printed(85.5, 86.1))
    assert paper.table1_autoencoder()["1"]["kld"] == paper.Printed(85.1, 85.5)
    assert {len(row) for row in paper.table1_autoencoder().values()} == {4}
    assert paper.table3()["gcca"]["full"] == best[1]
    assert paper.table3()["ae"]["without SBERT"] == paper.Printed(28.7, 41.0)
