"""The table of all ensembles: its arithmetic on invented scores, its trials on small members, and what is stored."""

from __future__ import annotations

import gzip
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_laboratory import CORPORA, DATASETS, small_laboratory
from stand_ins import trusted

from ensembed.errors import InputError
from ensembed.paper.findings import DEV, MEAN, CorpusFacts, DatasetFacts, MemberFacts
from ensembed.paper.named_corpora import NamedCorpus
from ensembed.paper.notebook import from_json, to_json
from ensembed.reliability import Reliability
from ensembed.sts import Dataset, Pairs
from ensembed.sts.protocol import Score
from experiments import ensembles_trials
from experiments.ensembles_scores import AUTO, Addition, Combined, Elsewhere, Ensembles, Row, Trust
from experiments.ensembles_table import MEMBERS, other_corpora, page, signed, summary, text
from experiments.ensembles_trials import PAPER, WEIGHTED, Trials, useless

RESULTS = Path(__file__).parents[2] / "results"


def row(label: str, test: tuple[float, float], other: tuple[float, float], dev: tuple[float, float]) -> Row:
    return Row(label, 4, {"sts12": Score(*test), "stsb-test": Score(*other), DEV: Score(*dev)})


def flat(label: str, pearson: float, spearman: float, dev: tuple[float, float] = (0.5, 0.5)) -> Row:
    return row(label, (pearson, spearman), (pearson, spearman), dev)


def trust(*weights: float, best: str = "a", mute: tuple[str, ...] = ()) -> Trust:
    low, high = (tuple(w + by for w in weights) for by in (-0.1, 0.1))
    return Trust(best, weights, low, high, mute, weights, ())


# a is best by Pearson (70 in the mean), b by Spearman (66); c is far behind.
SINGLES = (
    row("a", (0.60, 0.50), (0.80, 0.70), (0.9, 0.8)),
    row("b", (0.64, 0.62), (0.72, 0.70), (0.7, 0.9)),
    row("c", (0.20, 0.20), (0.30, 0.30), (0.1, 0.1)),
)
COMBINED = (
    Combined(("a", "b"), trust(1, 0.5), (flat("conc", 0.69, 0.63), flat(AUTO, 0.72, 0.67, (0.91, 0.89)))),
    Combined(("a", "c"), trust(1, 0.1), (flat("conc", 0.60, 0.59), flat(AUTO, 0.6995, 0.5991, (0.95, 0.85)))),
    Combined(("b", "c"), trust(0.3, 1, best="c"), (flat("conc", 0.66, 0.65), flat(AUTO, 0.69, 0.655, (0.8, 0.9)))),
)
FOUND = Ensembles(
    provenance={"ensembed": "9.9", "numpy": "8.8"},
    protocol="mean",
    text="raw",
    datasets=(
        DatasetFacts("sts12", "tsv", "f", {"p": 2}, ("SMT",)),
        DatasetFacts("stsb-test", "tsv", "f", {"p": 2}, ()),
        DatasetFacts(DEV, "tsv", "f", {"p": 2}, ()),
    ),
    corpora=(CorpusFacts("main", "the main one", 10, "k"), CorpusFacts("wiki", "another one", 20, "l")),
    members=tuple(MemberFacts(name, 4, "", "key", {}) for name in "abc"),
    singles=SINGLES,
    combined=COMBINED,
    additions=(
        Addition(("a", "b"), "a constant", trust(1, 0.5, 0, mute=("a constant",)), flat(AUTO, 0.72, 0.669)),
        Addition(("a", "b"), "random vectors", trust(1, 0.5, 0.1), flat(AUTO, 0.7175, 0.68)),
    ),
    elsewhere=(
        Elsewhere(("a", "b"), "main", 0, trust(1, 0.5), flat(AUTO, 0.72, 0.67)),
        Elsewhere(("a", "b"), "wiki", 0, trust(0.5, 1, best="b"), flat(AUTO, 0.68, 0.67)),
        Elsewhere(("b", "c"), "wiki", 0, trust(1, 0.5, best="c"), flat(AUTO, 0.70, 0.67)),
    ),
)


def test_regrets_are_those_computed_by_hand() -> None:
    best, score = FOUND.best_member(("a", "b"), "pearson")
    assert (best, round(score, 6)) == ("a", 0.70)
    best, score = FOUND.best_member(("a", "b"), "spearman")
    assert (best, round(score, 6)) == ("b", 0.66)
    assert signed(FOUND.regret(("a", "b"), COMBINED[0].method("conc"))) == "+1.00/+3.00"
    conc, auto = FOUND.regrets("conc"), FOUND.regrets(AUTO)
    # 70-69, 70-60, 68-66 and 66-63, 60-59, 66-65
    assert signed(conc.mean) == "+4.33/+1.67"
    assert signed(conc.worst) == "+10.00/+3.00"
    assert conc.level == 0
    # -2, 0.05, -1 and -1, 0.09, 0.5
    assert signed(auto.mean) == "-0.98/-0.14"
    assert signed(auto.worst) == "+0.05/+0.50"
    assert auto.level == 2
    assert [one.name for one in FOUND.resisting()] == ["b + c"]
    dev = FOUND.regrets(AUTO, DEV)  # 90-91, 90-95, 70-80 and 90-89, 80-85, 90-90
    assert signed(dev.mean) == "-5.33/-1.33"
    assert signed(dev.worst) == "-1.00/+1.00"
    assert dev.level == 2


def test_regret_that_rounds_to_zero_is_written_one_way() -> None:
    assert signed(Score(-0.00001, 0.00001)) == "+0.00/+0.00"


def test_error_names_what_was_not_scored() -> None:
    with pytest.raises(InputError, match="a was not scored on 'sts16'; it was on: sts12, stsb-test"):
        SINGLES[0].score("sts16")
    with pytest.raises(InputError, match="no 'gcca'; there are: conc, auto"):
        FOUND.regrets("gcca")
    with pytest.raises(InputError, match="no ensemble of c, a"):
        FOUND.of(("c", "a"))


def test_the_summary_is_computed() -> None:
    lines = summary(FOUND)
    assert lines[0].startswith("auto is at or above the best member, 0.1 allowed for noise, in 2 of 3 ensembles")
    assert "(mean regret -0.98/-0.14, worst +0.05/+0.50)" in lines[0]
    assert "in 2 of 3 on STS-B dev (mean -5.33/-1.33, worst -1.00/+1.00)" in lines[0]
    assert lines[1] == "Of the paper's methods conc does best: 0 of 3, mean regret +4.33/+1.67, worst +10.00/+3.00."
    assert lines[2] == "Below their best member by more than 0.1: b + c (-1.00/+0.50)."
    assert lines[3] == "No method of the paper is above auto by more than 0.1 in both correlations anywhere."
    assert lines[4] == "auto is not more than 0.3 below the best of conc in 3 of 3."
    assert lines[5].endswith("is the best by Pearson's r in 2 of 3.")
    assert lines[6].startswith("Where the two best members are within 4 points of each other (1 ensembles), auto is ")
    assert lines[6].endswith("above the best by +2.00/+1.00 in the mean.")
    assert "falls by no more than 0.2 in 1 of 2 cases; the largest change downwards is -0.25/-0.10." in lines[7]
    assert "the same member is trusted most in 1 of 2 ensembles, and 1 are at or above" in lines[8]
    assert lines[8].endswith("(mean regret +0.00/-1.00, worst +2.00/-1.00); not a + b (trusts b).")
    good = replace(COMBINED[2], methods=(COMBINED[2].methods[0], flat(AUTO, 0.70, 0.67)))
    better = summary(replace(FOUND, combined=(*COMBINED[:2], good)))
    assert "in 3 of 3 ensembles" in better[0]
    assert better[2] == "No ensemble resists."
    weak = replace(COMBINED[0], methods=(flat("conc", 0.723, 0.675), COMBINED[0].methods[1]))
    beaten = summary(replace(FOUND, combined=(weak, *COMBINED[1:])))[3]
    assert (
        beaten == "A method of the paper is above auto by more than 0.1 in both, in 1 of 3: a + b (conc +0.30/+0.50)."
    )


def test_the_page_says_how_it_was_made_and_the_terminal_the_same() -> None:
    made = page(FOUND)
    for line in summary(FOUND):
        assert f"- {line}" in made
        assert line in text(FOUND)
    assert "Protocol: mean over a year's sub-testsets. Mean of the test sets: sts12, stsb-test." in made
    assert "on 10 sentences: the main one." in made
    assert "- wiki: another one, 20 sentences." in made
    assert "sts12 is without SMT." in made
    assert "Made with ensembed 9.9, numpy 8.8." in made
    assert "| a + b | a, b | a | 70.0/66.0 | 69.0/63.0 | 72.0/67.0 |" in made
    assert "| b + c | +2.00/+1.00 | -1.00/+0.50 | no |" in made
    assert "| a + b | a constant | 1.00, 0.50, 0.00 | 72.0/67.0 | 72.0/66.9 | +0.00/-0.10 |" in made
    assert "| wiki, seed 0 | 1 of 2 | +0.00/-1.00 | +2.00/-1.00 | 1 of 2 |" in made


def test_ensembles_survive_json() -> None:
    again = from_json(Ensembles, to_json(Ensembles, FOUND))
    assert again == FOUND
    assert page(again) == page(FOUND)


def stand_in(weights: dict[str, float]) -> Any:  # noqa: ANN401 - a function of the signature of `reliability`
    def found(views: Sequence[Any], *, sentences: Any, names: Sequence[str], seed: int) -> Reliability:  # noqa: ANN401 - whatever the method passes
        assert {len(view) for view in views} == {len(list(sentences))}
        return trusted([weights.get(name, 0.0) for name in names], names, rows=len(views[0]), seed=seed)

    return found


def small_trials(folder: Path, datasets: Sequence[Dataset] = DATASETS) -> Trials:
    laboratory = replace(small_laboratory(folder), datasets=datasets)
    named = [NamedCorpus(name, f"the {name} one", corpus) for name, corpus in CORPORA.items()]
    names = [encoder.spec.name for encoder in laboratory.ensemble.encoders]
    return Trials(laboratory, named, [(names[0], names[1])])


def test_trials_on_small_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trials = small_trials(tmp_path)
    a, b, c = trials.names
    monkeypatch.setattr(ensembles_trials, "reliability", stand_in({a: 1.0, b: 1.0, c: 1e-12}))
    found = trials.run()
    assert [one.members for one in found.combined] == [(a, b), (a, c), (b, c), (a, b, c)]
    assert found.methods == (*PAPER, *WEIGHTED)
    for method, weighted in (("conc", AUTO), ("gcca", "gcca, weighted")):
        even = found.of((a, b))  # the same weights are no weights
        for name in (MEAN, DEV):
            assert even.method(weighted).score(name).pearson == pytest.approx(even.method(method).score(name).pearson)
    for members, alone in (((a, c), found.singles[0]), ((b, c), found.singles[1])):  # next to no weight
        assert found.of(members).method(AUTO).score(MEAN).pearson == pytest.approx(alone.score(MEAN).pearson, abs=1e-4)
        assert found.of(members).method("conc").score(MEAN) != alone.score(MEAN)
    assert len(found.additions) == 8
    for addition in found.additions:  # what has no weight changes nothing
        assert addition.trust.mute == (addition.added,)
        assert abs(found.change(addition).pearson) < 1e-6
    places = [(one.corpus, one.seed) for one in found.elsewhere]
    looks = {place: places.count(place) for place in places}
    assert looks == {("main", 0): 4, ("other", 0): 4, ("main", 1): 2, ("main", 2): 2}
    assert page(from_json(Ensembles, to_json(Ensembles, found))) == page(found)

    def never(*_: object, **__: object) -> None:
        raise AssertionError("what is in the notebook is not found again")

    monkeypatch.setattr(ensembles_trials, "reliability", never)
    again = small_trials(tmp_path).run()
    assert again.combined == found.combined
    assert again.elsewhere == found.elsewhere
    assert again.additions == found.additions


def test_other_scores_leave_weights_and_cosines_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but the last step reads a score."""
    turned = [
        replace(one, parts=tuple(Pairs(p.name, p.sentences1, p.sentences2, 5.0 - p.scores) for p in one.parts))
        for one in DATASETS
    ]
    trials = small_trials(tmp_path)
    monkeypatch.setattr(
        ensembles_trials, "reliability", stand_in(dict(zip(trials.names, (1.0, 0.5, 0.2), strict=True)))
    )
    found, other = trials.run(), small_trials(tmp_path, turned).run()
    for one, two in zip(found.combined, other.combined, strict=True):
        assert one.trust == two.trust
        for label in found.methods:
            assert one.method(label).score(DEV).pearson == pytest.approx(-two.method(label).score(DEV).pearson)


def test_useless_members_match_their_descriptions() -> None:
    generator = np.random.default_rng(1)
    views = [generator.standard_normal((50, d)).astype(np.float32) for d in (4, 3)]
    scored = [generator.standard_normal((30, d)).astype(np.float32) for d in (4, 3)]
    made = useless(["a", "b"], views, scored)
    assert all(len(view) == 50 and len(other) == 30 for view, other in made.values())
    assert len(np.unique(made["random vectors"][0], axis=0)) == 50
    for vectors in made["a constant"]:
        assert len(np.unique(vectors, axis=0)) == 1
    for place, name in ((0, "a"), (-1, "b")):
        copied, shuffled = made[f"a copy of {name}"], made[f"{name} with its rows shuffled"]
        for given, copy, moved in zip((views[place], scored[place]), copied, shuffled, strict=True):
            assert np.array_equal(copy, given)
            assert not np.array_equal(moved, given)
            assert np.array_equal(np.sort(moved, axis=0), np.sort(given, axis=0))


def test_other_corpora_are_the_first_lines_of_found_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENSEMBED_DATA", str(tmp_path))
    (tmp_path / "corpus").mkdir()
    assert other_corpora() == []
    with gzip.open(tmp_path / "corpus" / "leipzig_eng_news_2016_raw.txt.gz", "wt") as file:
        file.writelines(f"line {i}\n" for i in range(6010))
    [news] = other_corpora()
    assert news.name == "news"
    lines = list(news.corpus)
    assert len(lines) == 6000
    assert lines[-1] == "line 5999"


@pytest.fixture(scope="module")
def stored() -> Ensembles:
    return from_json(Ensembles, (RESULTS / "ensembles.json").read_bytes())


def test_the_page_in_the_repository_says_what_its_data_says(stored: Ensembles) -> None:
    assert (RESULTS / "ensembles.md").read_text() == page(stored)


def test_the_data_in_the_repository_is_of_all_ensembles(stored: Ensembles) -> None:
    assert tuple(one.name for one in stored.members) == MEMBERS
    assert len({one.members for one in stored.combined}) == len(stored.combined) == 28 + 56 + 70 + 1
    assert [one.name for one in stored.datasets] == [*(f"sts{year}" for year in range(12, 17)), "stsb-test", DEV]
    assert next(one for one in stored.datasets if one.name == "sts13").missing == ("SMT",)
    # The best members' means, measured by other code: gte-small 81.2/81.4, minilm 78.3/77.9.
    scores = {row.label: str(row.score(MEAN)) for row in stored.singles}
    assert (scores["gte-small"], scores["minilm"]) == ("81.2/81.4", "78.3/77.9")
    assert not re.search(r"[^\x00-\x7f]", page(stored))
