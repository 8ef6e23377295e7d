"""The bootstrap against a slow one that repeats rows, against scipy's, and against what theory says of it."""

from __future__ import annotations

import hashlib
from bisect import bisect
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from ensembed.errors import DatasetError, InputError
from ensembed.paper.experiments import bootstrap as module
from ensembed.paper.experiments.bootstrap import Predictions, Resampled, resample
from ensembed.paper.findings import DEV, MEAN, Interval
from ensembed.sts import PROTOCOLS, Dataset, Pairs, Protocol, Score, aggregate, pearson, spearman

Array = NDArray[np.float64]

POISSON = stats.poisson(1).cdf(range(30)).tolist()
# Few distinct values, so that ties are common, and any values.
VALUES = st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(-1, 1, allow_subnormal=False))
PART = st.lists(st.tuples(VALUES, VALUES), min_size=2, max_size=12)


def pairs(name: str, gold: Sequence[float] | Array) -> Pairs:
    """Pairs that no part of another name has."""
    texts = tuple(f"{name} {i}" for i in range(len(gold)))
    return Pairs(name, texts, texts, np.asarray(gold, np.float64))


def dataset_of(name: str, *golds: Sequence[float] | Array) -> Dataset:
    return Dataset(name, tuple(pairs(f"{name}-{j}", gold) for j, gold in enumerate(golds)))


def invented(name: str, sizes: Sequence[int], seed: int = 0) -> tuple[Dataset, dict[str, list[Array]]]:
    """A data set with tied gold, and cosines of three systems: fair, better, and with many ties."""
    rng = np.random.default_rng(seed)
    golds = [np.round(rng.uniform(0, 5, n) * 4) / 4 for n in sizes]
    systems = {
        "fair": [gold / 5 + rng.normal(size=len(gold)) * 0.4 for gold in golds],
        "good": [gold / 5 + rng.normal(size=len(gold)) * 0.2 for gold in golds],
        "tied": [np.round(gold / 5 + rng.normal(size=len(gold)) * 0.3, 1) for gold in golds],
    }
    return dataset_of(name, *golds), systems


def drawn(seed: int, resample: int, attempt: int, *sentences: str) -> int:
    """How often a pair is drawn, with Python's integers: SplitMix64 from a hash, and Poisson's distribution."""
    texts = [text.encode() for text in (str(seed), *sorted(sentences))]
    facts = b"".join(len(text).to_bytes(8, "big") + text for text in texts)
    state = int.from_bytes(hashlib.blake2b(facts, digest_size=8).digest(), "big")
    z = (state + (attempt * 2**32 + resample + 1) * 0x9E3779B97F4A7C15) % 2**64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
    return bisect(POISSON, ((z ^ z >> 31) >> 11) / 2**53)


def rows_drawn(seed: int, resample: int, attempt: int, part: Pairs) -> list[int]:
    """The rows of a resample, each as often as its pair is drawn."""
    pairs = zip(part.sentences1, part.sentences2, strict=True)
    return [row for row, pair in enumerate(pairs) for _ in range(drawn(seed, resample, attempt, *pair))]


def slow_scores(cosines: Sequence[Array], dataset: Dataset, protocol: Protocol, resamples: int, seed: int = 0) -> Array:
    """The bootstrap as one would explain it: repeat the drawn rows, and score them. [resamples, 2]."""
    places = range(len(dataset.parts))
    groups = [list(places)] if protocol == "all" else [[j] for j in places]
    found = []
    for resample_number in range(resamples):
        each = []
        for group in groups:
            for attempt in range(100):
                rows = [(j, rows_drawn(seed, resample_number, attempt, dataset.parts[j])) for j in group]
                gold = np.concatenate([dataset.parts[j].scores[own] for j, own in rows])
                if len(gold) and np.ptp(gold) > 1e-13 * np.abs(gold).max():
                    break
            x = np.concatenate([cosines[j][own] for j, own in rows])
            each.append([pearson(x, gold), spearman(x, gold)])
        sizes = [sum(len(dataset.parts[j]) for j in group) for group in groups]
        found.append(np.average(each, axis=0, weights=sizes if protocol == "wmean" else None))
    return np.array(found)


def one_system(cosines: Sequence[Array], dataset: Dataset, protocol: Protocol = "mean", resamples: int = 50) -> Array:
    scores = resample({"one": {dataset.name: cosines}}, [dataset], protocol, resamples=resamples).scores
    return scores["one"][dataset.name]


def by_label(*found: tuple[Dataset, dict[str, list[Array]]]) -> dict[str, Predictions]:
    return {label: {dataset.name: systems[label] for dataset, systems in found} for label in found[0][1]}


# Scores


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("seed", [0, 7])
def test_scores_equal_those_of_repeated_rows(protocol: Protocol, seed: int) -> None:
    dataset, systems = invented("toy", [40, 3, 150, 2], seed)
    found = resample(by_label((dataset, systems)), [dataset], protocol, resamples=60, seed=seed).scores
    for label, cosines in systems.items():
        expected = slow_scores(cosines, dataset, protocol, 60, seed)
        np.testing.assert_allclose(found[label]["toy"], expected, rtol=0, atol=1e-12)


def test_scores_equal_scipys() -> None:
    dataset, systems = invented("toy", [200])
    (part,) = dataset.parts
    for i, found in enumerate(one_system(systems["tied"], dataset)):
        rows = rows_drawn(0, i, 0, part)
        x, y = systems["tied"][0][rows], part.scores[rows]
        expected = [stats.pearsonr(x, y).statistic, stats.spearmanr(x, y).statistic]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


@given(st.lists(PART, min_size=1, max_size=3), st.sampled_from(PROTOCOLS))
@example([[(0.0, 0.0), (0.5, 1.0)]], "mean")
@example([[(1.0, 0.3), (1.0, 0.5), (1.0, 1.0)]], "wmean")  # constant predictions
@example([[(1.0, 0.0), (0.0, 0.0)], [(0.5, 1.0), (0.5, 1.0)]], "mean")
def test_scores_of_any_values_equal_those_of_repeated_rows(
    parts: list[list[tuple[float, float]]], protocol: Protocol
) -> None:
    cosines = [np.array([x for x, _ in part]) for part in parts]
    dataset = dataset_of("toy", *([y for _, y in part] for part in parts))
    for values in (*cosines, *(part.scores for part in dataset.parts)):
        # Differences far below the size of the values are rounding, and of that two ways of adding up have their own.
        steps = np.diff(np.unique(values))
        assume(len(steps) == 0 or steps.min() > 1e-6)
    try:
        aggregate(cosines, dataset, protocol)
    except DatasetError:
        with pytest.raises(DatasetError):
            one_system(cosines, dataset, protocol, 20)
        return
    found = one_system(cosines, dataset, protocol, 20)
    assert np.isfinite(found).all()
    assert np.abs(found).max() <= 1
    np.testing.assert_allclose(found, slow_scores(cosines, dataset, protocol, 20), rtol=0, atol=1e-9)


def test_resample_with_constant_gold_scores_is_drawn_again() -> None:
    found = one_system([np.array([0.1, 0.9])], dataset_of("toy", [1, 2]), resamples=200)
    np.testing.assert_allclose(found, 1.0, atol=1e-12)


def test_constant_predictions_score_0() -> None:
    for constant in (np.full(50, 0.1), np.zeros(50), np.where(np.arange(50) % 2, 1.0, 1.0 - 2**-53)):
        assert (one_system([constant], dataset_of("toy", np.arange(50.0))) == 0).all(), "rounding is no information"
    # Two distinct cosines, one of them rare: where it is not drawn, the score is 0.
    rare = one_system([np.array([0.3, 0.3, 0.3, 0.3, 0.9])], dataset_of("toy", [1, 2, 3, 4, 5]), resamples=300)
    assert 0.2 < (rare == 0).all(axis=1).mean() < 0.5


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1e160, 1e300])
def test_scores_do_not_depend_on_scale(scale: float) -> None:
    dataset, systems = invented("toy", [30])
    expected = one_system(systems["fair"], dataset)
    np.testing.assert_allclose(one_system([systems["fair"][0] * scale], dataset), expected, atol=1e-12)
    scaled = dataset_of("toy", dataset.parts[0].scores * scale)
    np.testing.assert_allclose(one_system(systems["fair"], scaled), expected, atol=1e-12)


def test_no_nan_where_differences_are_too_small_for_their_squares() -> None:
    values = np.array([1.0, 1e-200, 2e-200])
    assert np.isfinite(one_system([values], dataset_of("toy", [1, 2, 3]))).all()
    assert np.isfinite(one_system([np.array([0.1, 0.2, 0.3])], dataset_of("toy", values))).all()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_draws_do_not_depend_on_the_block_size(protocol: Protocol, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset, systems = invented("toy", [20, 2, 30])
    expected = one_system(systems["fair"], dataset, protocol)
    monkeypatch.setattr(module, "_BLOCK", 100)
    np.testing.assert_allclose(one_system(systems["fair"], dataset, protocol), expected, rtol=0, atol=1e-14)


def test_scores_do_not_depend_on_other_systems_or_data_sets() -> None:
    one, two = invented("one", [30, 20], 1), invented("two", [25], 2)
    systems, datasets = by_label(one, two), [one[0], two[0]]
    together = resample(systems, datasets, "mean", resamples=40).scores
    for label, cosines in systems.items():
        for dataset in datasets:
            alone = resample({label: cosines}, [dataset], "mean", resamples=40).scores
            np.testing.assert_array_equal(alone[label][dataset.name], together[label][dataset.name])
    again = resample(systems, datasets, "mean", resamples=40, seed=1).scores
    assert not np.array_equal(again["fair"]["one"], together["fair"]["one"])


# Draws


def test_scores_of_data_sets_with_shared_pairs_are_correlated() -> None:
    """The mean over three copies of a data set is as uncertain as the data set, and not by a root of 3 less."""
    gold = np.random.default_rng(0).normal(size=150)
    x = 0.6 * gold + 0.8 * np.random.default_rng(1).normal(size=150)
    part = pairs("toy", gold)
    turned = Pairs("turned", part.sentences2[::-1], part.sentences1[::-1], gold[::-1])
    copies = [Dataset("one", (part,)), Dataset("two", (part,)), Dataset("three", (turned,))]
    resampled = resample({"a": {"one": [x], "two": [x], "three": [x[::-1]]}}, copies, "mean", resamples=200)
    np.testing.assert_allclose(resampled.scores["a"]["three"], resampled.scores["a"]["one"], rtol=0, atol=1e-12)
    mean, one = (resampled.interval("a", name) for name in (MEAN, "one"))
    assert mean.high.pearson - mean.low.pearson == pytest.approx(one.high.pearson - one.low.pearson)


def test_repeated_pair_is_drawn_equally_often_in_all_its_rows() -> None:
    """Repeating every row of a part adds no certainty."""
    gold = np.random.default_rng(0).normal(size=60)
    x = gold + np.random.default_rng(1).normal(size=60)
    part = pairs("toy", gold)
    twice = Pairs("twice", part.sentences1 * 2, part.sentences2 * 2, np.tile(gold, 2))
    np.testing.assert_allclose(
        one_system([np.tile(x, 2)], Dataset.of(twice)), one_system([x], Dataset.of(part)), rtol=0, atol=1e-12
    )


def test_drawing_one_part_again_does_not_change_other_parts() -> None:
    dataset, systems = invented("toy", [40])
    tiny = pairs("tiny", [1.0, 2.0])
    both = Dataset("both", (*dataset.parts, tiny))
    scores = one_system([*systems["fair"], np.array([0.1, 0.9])], both)
    np.testing.assert_allclose(2 * scores - 1, one_system(systems["fair"], dataset), rtol=0, atol=1e-12)


def test_progress_counts_drawn_pairs() -> None:
    one, two = invented("one", [30, 20]), invented("two", [25])
    heard: list[tuple[str, int, int | None]] = []
    resample(by_label(one, two), [one[0], two[0]], "mean", resamples=7, progress=lambda *report: heard.append(report))
    assert heard[-1] == ("bootstrap", 7 * 75, 7 * 75)
    assert [done for _, done, _ in heard] == sorted({done for _, done, _ in heard})


# Intervals


def test_mean_is_over_test_sets_without_dev() -> None:
    found = [invented("one", [30, 20], 1), invented("two", [25], 2), invented(DEV, [50], 3)]
    resampled = resample(by_label(*found), [dataset for dataset, _ in found], "mean", resamples=40)
    scores = resampled.scores["good"]
    np.testing.assert_allclose(scores[MEAN], (scores["one"] + scores["two"]) / 2, rtol=0, atol=1e-15)
    points = resampled.points["good"]
    assert points["one"] == aggregate(found[0][1]["good"], found[0][0], "mean")
    assert points[MEAN].spearman == pytest.approx((points["one"].spearman + points["two"].spearman) / 2, abs=1e-15)
    only_dev = resample(by_label(found[2]), [found[2][0]], "mean", resamples=40)
    assert set(only_dev.scores["good"]) == {DEV}
    assert only_dev.comparisons(["good"], ["fair"]) == ()


def test_intervals_are_percentiles() -> None:
    scores = np.column_stack([np.arange(201) / 200, np.arange(201)[::-1] / 400])
    resampled = Resampled({}, {"one": {"toy": scores}})
    found = resampled.interval("one", "toy")
    assert (found.label, found.dataset) == ("one", "toy")
    low_high = [found.low.pearson, found.high.pearson, found.low.spearman, found.high.spearman]
    np.testing.assert_allclose(low_high, [0.025, 0.975, 0.0125, 0.4875], atol=1e-12)
    assert isinstance(found, Interval)


def test_intervals_agree_with_scipy_bootstrap() -> None:
    dataset, systems = invented("toy", [120])
    x, y = systems["fair"][0], dataset.parts[0].scores
    resampled = resample({"fair": {"toy": [x]}}, [dataset], "mean", resamples=4000)
    found = resampled.interval("fair", "toy")
    for metric, function in (("pearson", stats.pearsonr), ("spearman", stats.spearmanr)):
        expected = stats.bootstrap(
            (x, y),
            lambda a, b, function=function: function(a, b).statistic,
            paired=True,
            vectorized=False,
            method="percentile",
            n_resamples=2000,
            random_state=np.random.default_rng(1),
        ).confidence_interval
        # Two sets of draws: their quantiles differ by a few hundredths of the interval.
        limits = [getattr(found.low, metric), getattr(found.high, metric)]
        np.testing.assert_allclose(limits, expected, rtol=0, atol=0.1 * (expected.high - expected.low))


def test_intervals_and_tests_have_their_nominal_error_rates() -> None:
    """95 of 100 intervals hold the true correlation, and of two equally good systems few differ significantly."""
    rng, rho, trials = np.random.default_rng(0), 0.6, 300
    covered = differ = 0
    for trial in range(trials):
        gold, noise, other = rng.normal(size=(3, 120))
        systems: dict[str, Predictions] = {
            label: {"toy": [rho * gold + np.sqrt(1 - rho**2) * e]} for label, e in (("one", noise), ("two", other))
        }
        resampled = resample(systems, [dataset_of("toy", gold)], "mean", resamples=300, seed=trial)
        interval = resampled.interval("one", "toy")
        covered += interval.low.pearson < rho < interval.high.pearson
        differ += resampled.comparisons(["two"], ["one"])[0].p < 0.05
    assert 0.90 < covered / trials < 0.98
    assert 0.02 < differ / trials < 0.09


# Comparisons


def test_comparison_of_a_system_with_itself_has_no_difference() -> None:
    dataset, systems = invented("toy", [60, 30])
    same: Mapping[str, Predictions] = {name: {"toy": systems["fair"]} for name in ("meta:same", "single:a")}
    for test in resample(same, [dataset], "mean", resamples=100).comparisons(["meta:same"], ["single:a"]):
        assert (test.difference, test.low, test.high, test.p, test.p_holm) == (0, 0, 0, 1, 1)


def test_comparisons_are_paired_and_corrected_for_each_data_set_and_metric() -> None:
    found = [invented("one", [60, 30], 1), invented("two", [80], 2), invented(DEV, [50], 3)]
    resampled = resample(by_label(*found), [dataset for dataset, _ in found], "mean", resamples=400)
    tests = resampled.comparisons(["good", "tied"], ["fair"])
    assert [(test.dataset, test.metric, test.label) for test in tests] == [
        (dataset, metric, label)
        for dataset in ("one", "two", MEAN)
        for metric in ("pearson", "spearman")
        for label in ("good", "tied")
    ]
    for test in tests:
        column = ["pearson", "spearman"].index(test.metric)
        ours, theirs = (resampled.scores[label][test.dataset][:, column] for label in (test.label, "fair"))
        assert (test.low, test.high) == pytest.approx(np.quantile(ours - theirs, [0.025, 0.975]))
        points = [getattr(resampled.points[label][test.dataset], test.metric) for label in (test.label, "fair")]
        assert test.difference == pytest.approx(points[0] - points[1])
        k = min(np.sum(ours <= theirs), np.sum(ours >= theirs))
        assert test.p == pytest.approx(min(1, 2 * (k + 1) / 401))
        family = [t.p for t in tests if (t.dataset, t.metric) == (test.dataset, test.metric)]
        assert test.p_holm == pytest.approx(
            min(2 * test.p, 1) if test.p == min(family) else max(test.p, 2 * min(family))
        )
    best = next(test for test in tests if (test.dataset, test.metric, test.label) == (MEAN, "pearson", "good"))
    assert best.low > 0
    assert best.p == pytest.approx(2 / 401)


# Errors


def test_resample_refuses_bad_arguments() -> None:
    dataset, cosines = invented("toy", [10])
    systems = by_label((dataset, cosines))
    with pytest.raises(InputError, match="resamples must be at least 1 and the seed at least 0, not 0 and 0"):
        resample(systems, [dataset], "mean", resamples=0)
    with pytest.raises(InputError, match="not 2000 and -1"):
        resample(systems, [dataset], "mean", seed=-1)
    with pytest.raises(InputError, match="there is no protocol 'median'"):
        resample(systems, [dataset], "median")  # type: ignore[arg-type] # what is refused
    with pytest.raises(InputError, match="names of their own, other than 'mean', not toy, toy"):
        resample(systems, [dataset, dataset], "mean")
    with pytest.raises(InputError, match="names of their own"):
        resample(systems, [Dataset(MEAN, dataset.parts)], "mean")
    with pytest.raises(InputError, match="fair has no predictions for other"):
        resample(systems, [dataset, Dataset("other", dataset.parts)], "mean")
    with pytest.raises(InputError, match=r"toy should be arrays of shapes \[\(10,\)\], got \[\(9,\)\]"):
        resample({"one": {"toy": [np.zeros(9)]}}, [dataset], "mean")
    with pytest.raises(InputError, match="prediction 0 is nan"):
        resample({"one": {"toy": [np.full(10, np.nan)]}}, [dataset], "mean")
    with pytest.raises(DatasetError, match="at least two pairs, got 1"):
        one_system([np.zeros(1)], dataset_of("toy", [1.0]))
    with pytest.raises(DatasetError, match="all 3 gold scores are 2"):
        one_system([np.arange(3.0)], dataset_of("toy", [2.0, 2.0, 2.0]))


def test_protocol_all_pools_parts_that_cannot_be_scored_alone() -> None:
    dataset = dataset_of("toy", [1.0], [2.0, 2.0, 2.0], [3.0, 4.0])
    cosines = [np.array([0.1]), np.array([0.2, 0.3, 0.1]), np.array([0.9, 0.8])]
    np.testing.assert_allclose(
        one_system(cosines, dataset, "all"), slow_scores(cosines, dataset, "all", 50), rtol=0, atol=1e-12
    )


def test_interval_of_an_unknown_system_or_data_set_is_an_error() -> None:
    resampled = Resampled({"one": {"toy": Score(0.5, 0.5)}}, {"one": {"toy": np.zeros((40, 2))}})
    with pytest.raises(InputError, match="one was not resampled on 'sts12', only on toy"):
        resampled.interval("one", "sts12")
    for call in (lambda: resampled.interval("two", "toy"), lambda: resampled.comparisons(["one"], ["two"])):
        with pytest.raises(InputError, match="there is no system 'two' among those resampled: one"):
            call()
    with pytest.raises(InputError, match="there is no system 'two'"):
        resampled.comparisons(["two"], ["one"])
    with pytest.raises(InputError, match="at least one member"):
        resampled.comparisons(["one"], [])
