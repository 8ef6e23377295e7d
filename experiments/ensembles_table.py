"""`python -m experiments.ensembles_table`: ensembles of two to four of eight encoders, with every method.

Pulls the encoders and STS-B, estimates on the unlabelled sentences of STS-B train how far each member can be trusted,
fits every method on the same sentences, and writes `ensembles.md` and `ensembles.json`. What is finished is kept: run
it again after an interruption. `--fresh` computes everything again.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

from ensembed.corpora.corpus import ListCorpus, TextCorpus
from ensembed.fetch.fetcher import pull
from ensembed.models.ensemble import Ensemble
from ensembed.paper.findings import DEV, MEAN, METRICS
from ensembed.paper.laboratory import Laboratory
from ensembed.paper.named_corpora import STSB_TRAIN, NamedCorpus, open_corpora
from ensembed.paper.notebook import Notebook, to_json
from ensembed.sts.find import find_available
from ensembed.sts.protocol import Score
from ensembed.support.machine import cache_dir, data_dirs
from ensembed.support.progress import bars
from ensembed.support.text_tables import markdown_table, text_table
from ensembed.views import ViewStore
from experiments import run, write_results
from experiments.ensembles_scores import AUTO, FALL, NOISE, Combined, Elsewhere, Ensembles, Regrets, Trust, level
from experiments.ensembles_trials import PAPER, Trials

MEMBERS = ("gte-small", "mpnet", "minilm", "paraphrase", "use-m3", "wordllama", "use-lite", "glove")
FIRST = ("gte-small", "minilm", "wordllama", "use-lite", "glove")
"""The encoders of version 0.1, whose 26 ensembles `auto` was made with."""
EXAMPLES = (("minilm", "wordllama", "use-lite"), ("gte-small", "minilm"))
"""Ensembles that useless members are added to: near-equals, and a pair, about which agreement alone says nothing."""

_COMMAND = "python -m experiments.ensembles_table"
_OTHER_CORPORA = {
    "wikipedia": "leipzig_eng_wikipedia_2016_raw.txt.gz",
    "news": "leipzig_eng_news_2016_raw.txt.gz",
}
_LINES = 6000
NEAR = 0.04
"""Members within this of each other are near-equals, where an ensemble has most to give."""
_WITHIN = 0.003

Cells = tuple[list[str], list[list[str]]]


def summary(ensembles: Ensembles) -> list[str]:
    """The sentences worth repeating elsewhere, all of them computed."""
    ours, many = ensembles.regrets(AUTO), len(ensembles.combined)
    paper = [label for label in ensembles.methods if label in PAPER]
    least = min(paper, key=lambda label: sum(vars(ensembles.regrets(label).mean).values()))
    on_dev = ensembles.regrets(AUTO, DEV)
    ours_says = (
        f"auto is at or above the best member, {100 * NOISE:g} allowed for noise, in {ours.level} of {many} ensembles "
        f"on the mean of the test sets (mean regret {signed(ours.mean)}, worst {signed(ours.worst)}), and in "
        f"{on_dev.level} of {many} on STS-B dev (mean {signed(on_dev.mean)}, worst {signed(on_dev.worst)})."
    )
    paper_says = (
        f"Of the paper's methods {least} does best: {ensembles.regrets(least).level} of {many}, mean regret "
        f"{signed(ensembles.regrets(least).mean)}, worst {signed(ensembles.regrets(least).worst)}."
    )
    within = [_within(case, paper) for case in ensembles.combined]
    within_says = (
        f"auto is not more than {100 * _WITHIN:g} below the best of {', '.join(paper)} in {sum(within)} of {many}."
    )
    lines = [ours_says, *_first(ensembles), paper_says, _resisting(ensembles), _beaten(ensembles, paper), within_says]
    right = sum(ensembles.best_member(case.members, "pearson")[0] == case.trust.best for case in ensembles.combined)
    lines.append(f"The member trusted most, found without labels, is the best by Pearson's r in {right} of {many}.")
    if near := [case for case in ensembles.combined if _gap(ensembles, case.members) <= NEAR]:
        gains = Regrets(tuple(ensembles.regret(case.members, case.method(AUTO)) for case in near))
        lines.append(
            f"Where the two best members are within {100 * NEAR:g} points of each other ({len(near)} ensembles), auto "
            f"is above the best by {_points(-gains.mean.pearson)}/{_points(-gains.mean.spearman)} in the mean."
        )
    if changes := [ensembles.change(case) for case in ensembles.additions]:
        worst = Score(min(case.pearson for case in changes), min(case.spearman for case in changes))
        kept = sum(min(case.pearson, case.spearman) >= -FALL for case in changes)
        lines.append(
            f"With a useless member added auto falls by no more than {100 * FALL:g} in {kept} of {len(changes)} cases; "
            f"the largest change downwards is {signed(worst)}."
        )
    for corpus in ensembles.corpora[1:]:
        elsewhere = [case for case in ensembles.elsewhere if case.corpus == corpus.name and case.seed == 0]
        regrets = _regrets_of(ensembles, elsewhere)
        same = sum(case.trust.best == ensembles.of(case.members).trust.best for case in elsewhere)
        lines.append(
            f"With weights found on {corpus.what} instead, the same member is trusted most in {same} of "
            f"{len(elsewhere)} ensembles, and {regrets.level} are at or above their best member (mean regret "
            f"{signed(regrets.mean)}, worst {signed(regrets.worst)}){_below(elsewhere, regrets)}."
        )
    return lines


def _first(ensembles: Ensembles) -> list[str]:
    """Return a sentence about the ensembles of the encoders of version 0.1, if there are any."""
    first = [case for case in ensembles.combined if set(case.members) <= set(FIRST)]
    if not first:
        return []
    regrets = Regrets(tuple(ensembles.regret(case.members, case.method(AUTO)) for case in first))
    says = (
        f"Of the {len(first)} ensembles of the encoders of version 0.1 ({', '.join(FIRST)}) {regrets.level} are at or "
        f"above their best member (mean regret {signed(regrets.mean)}, worst {signed(regrets.worst)})."
    )
    return [says]


def _within(case: Combined, labels: Sequence[str]) -> bool:
    """Return whether auto is near the best of some methods, or above it, in the mean of both correlations."""
    scores = {label: case.method(label).score(MEAN) for label in (AUTO, *labels)}
    means = {label: (score.pearson + score.spearman) / 2 for label, score in scores.items()}
    return means[AUTO] >= max(means[label] for label in labels) - _WITHIN


def page(ensembles: Ensembles) -> str:
    """Everything as Markdown."""
    head = f"# Ensembles of two to four of eight encoders\n\nPrinted and written by `{_COMMAND}`.\n\n"
    facts = ", ".join(f"{key} {value}" for key, value in ensembles.provenance.items())
    notes = "\n".join(f"- {note}" for note in (*_notes(ensembles), f"Made with {facts}."))
    body = _sections(ensembles, markdown_table, "## {}\n\n{}")
    return head + "\n".join(f"- {line}" for line in summary(ensembles)) + f"\n\n{body}\n\n{notes}\n"


def text(ensembles: Ensembles) -> str:
    """Everything for a terminal."""
    lines = [*summary(ensembles), "", *_notes(ensembles)]
    return _sections(ensembles, text_table, "{}\n\n{}") + "\n\n" + "\n".join(lines)


def signed(score: Score) -> str:
    """A difference of scores, in points.

    Example:
        >>> signed(Score(0.012, -0.0005))
        '+1.20/-0.05'
    """
    return f"{_points(score.pearson)}/{_points(score.spearman)}"


def _points(difference: float) -> str:
    return f"{100 * difference + 0.0:+.2f}".replace("-0.00", "+0.00")  # no zero is less than another


def _sections(ensembles: Ensembles, table: Callable[..., str], form: str) -> str:
    sections: dict[str, Cells] = {
        "The members": _singles(ensembles),
        "Regret by method, mean of the test sets": _by_method(ensembles, MEAN),
        "Regret by method, STS-B dev": _by_method(ensembles, DEV),
        "Scores of every ensemble, mean of the test sets": _scores(ensembles),
        "Regret of every ensemble, mean of the test sets": _each(ensembles, MEAN),
        "Regret of every ensemble, STS-B dev": _each(ensembles, DEV),
        "Weights that auto found": _weights(ensembles),
        "Useless members added": _useless(ensembles),
        "Weights found on other corpora and under other seeds": _elsewhere(ensembles),
        "Weights of some ensembles there": _elsewhere_weights(ensembles),
    }
    return "\n\n".join(form.format(title, table(*cells)) for title, cells in sections.items() if cells[1])


def _singles(ensembles: Ensembles) -> Cells:
    names = [case.name for case in ensembles.datasets if case.name != DEV]
    rows = [
        [row.label, str(row.dim), *(str(row.score(name)) for name in (*names, MEAN, DEV))] for row in ensembles.singles
    ]
    return ["", "dim", *names, "mean", DEV], rows


def _by_method(ensembles: Ensembles, where: str) -> Cells:
    many = len(ensembles.combined)
    rows = []
    for label in ensembles.methods:
        regrets = ensembles.regrets(label, where)
        rows.append([label, signed(regrets.mean), signed(regrets.worst), f"{regrets.level} of {many}"])
    return ["", "mean regret", "worst regret", "at or above"], rows


def _scores(ensembles: Ensembles) -> Cells:
    rows = []
    for case in ensembles.combined:
        best = list(dict.fromkeys(ensembles.best_member(case.members, metric)[0] for metric in METRICS))
        scores = [str(case.method(label).score(MEAN)) for label in ensembles.methods]
        rows.append([case.name, ", ".join(best), case.trust.best, str(ensembles.best_score(case.members)), *scores])
    return ["", "best member", "trusted most", "its score", *ensembles.methods], rows


def _each(ensembles: Ensembles, where: str) -> Cells:
    rows = []
    for case in ensembles.combined:
        regrets = {label: ensembles.regret(case.members, case.method(label), where) for label in ensembles.methods}
        verdict = "yes" if level(regrets[AUTO]) else "no"
        rows.append([case.name, *(signed(regret) for regret in regrets.values()), verdict])
    return ["", *ensembles.methods, "auto at or above"], rows


def _weights(ensembles: Ensembles) -> Cells:
    names = [case.name for case in ensembles.members]
    rows = [[case.name, *_placed(names, case.members, case.trust)] for case in ensembles.combined]
    return ["", *names], rows


def _placed(names: Sequence[str], members: Sequence[str], trust: Trust) -> list[str]:
    """A cell per name: the weight and its interval, or nothing."""
    cells = {
        name: f"{weight:.2f} ({low:.2f} to {high:.2f})"
        for name, weight, low, high in zip(
            members, trust.whitened_weights, trust.weights_low, trust.weights_high, strict=True
        )
    }
    return [cells.get(name, "") for name in names]


def _useless(ensembles: Ensembles) -> Cells:
    rows = []
    for case in ensembles.additions:
        weights = ", ".join(f"{weight:.2f}" for weight in case.trust.weights)
        scores = [str(ensembles.of(case.members).method(AUTO).score(MEAN)), str(case.auto.score(MEAN))]
        change = ensembles.change(case)
        kept = "yes" if min(change.pearson, change.spearman) >= -FALL else "no"
        changes = [signed(change), signed(ensembles.change(case, DEV)), kept]
        rows.append([" + ".join(case.members), case.added, weights, *scores, *changes])
    within = f"falls by {100 * FALL:g} at most"
    return ["", "added", "weights", "auto without", "auto with", "change", f"change, {DEV}", within], rows


def _elsewhere(ensembles: Ensembles) -> Cells:
    rows = []
    for corpus, seed in dict.fromkeys((case.corpus, case.seed) for case in ensembles.elsewhere):
        elsewhere = [case for case in ensembles.elsewhere if (case.corpus, case.seed) == (corpus, seed)]
        same = sum(case.trust.best == ensembles.of(case.members).trust.best for case in elsewhere)
        regrets = _regrets_of(ensembles, elsewhere)
        count = f"of {len(elsewhere)}"
        cells = [f"{same} {count}", signed(regrets.mean), signed(regrets.worst), f"{regrets.level} {count}"]
        rows.append([f"{corpus}, seed {seed}", *cells])
    return ["", "same member trusted most", "auto: mean regret", "worst regret", "at or above"], rows


def _elsewhere_weights(ensembles: Ensembles) -> Cells:
    names = [case.name for case in ensembles.members]
    again = dict.fromkeys(case.members for case in ensembles.elsewhere if case.seed != 0)
    rows = [
        [f"{' + '.join(members)}: {case.corpus}, seed {case.seed}", *_placed(names, members, case.trust)]
        for members in again
        for case in ensembles.elsewhere
        if case.members == members
    ]
    return ["", *names], rows


def _regrets_of(ensembles: Ensembles, elsewhere: Sequence[Elsewhere]) -> Regrets:
    return Regrets(tuple(ensembles.regret(case.members, case.auto) for case in elsewhere))


def _below(elsewhere: Sequence[Elsewhere], regrets: Regrets) -> str:
    """Which are not at or above their best member, and whom they trusted."""
    both = zip(elsewhere, regrets.each, strict=True)
    names = [f"{' + '.join(case.members)} (trusts {case.trust.best})" for case, regret in both if not level(regret)]
    return f"; not {', '.join(names)}" if names else ""


def _gap(ensembles: Ensembles, members: Sequence[str]) -> float:
    """How far the second best of these members is behind the best, by Pearson's r."""
    scores = sorted(row.score(MEAN).pearson for row in ensembles.singles if row.label in members)
    return scores[-1] - scores[-2]


def _resisting(ensembles: Ensembles) -> str:
    resisting = ensembles.resisting()
    if not resisting:
        return "No ensemble resists."
    each = ", ".join(f"{case.name} ({signed(ensembles.regret(case.members, case.method(AUTO)))})" for case in resisting)
    return f"Below their best member by more than {100 * NOISE:g}: {each}."


def _beaten(ensembles: Ensembles, paper: Sequence[str]) -> str:
    """Where a method of the paper does better than auto in both correlations, by more than noise."""
    better = []
    for case in ensembles.combined:
        ours = case.method(AUTO).score(MEAN)
        gains = {label: case.method(label).score(MEAN) for label in paper}
        gains = {k: Score(v.pearson - ours.pearson, v.spearman - ours.spearman) for k, v in gains.items()}
        label = max(gains, key=lambda name: min(gains[name].pearson, gains[name].spearman))
        if min(gains[label].pearson, gains[label].spearman) > NOISE:
            better.append(f"{case.name} ({label} {signed(gains[label])})")
    if not better:
        return f"No method of the paper is above auto by more than {100 * NOISE:g} in both correlations anywhere."
    among = f"{len(better)} of {len(ensembles.combined)}"
    return f"A method of the paper is above auto by more than {100 * NOISE:g} in both, in {among}: {', '.join(better)}."


def _notes(ensembles: Ensembles) -> list[str]:
    first, *others = ensembles.corpora
    tests = ", ".join(case.name for case in ensembles.datasets if case.name != DEV)
    dims = ", ".join(f"{case.name} ({case.dim})" for case in ensembles.members)
    scoring = f"Pearson's r / Spearman's rho, x 100. Protocol: {ensembles.protocol} over a year's sub-testsets."
    regret = (
        "Regret: the best member's correlation less the method's, each correlation on its own, so that the best may be "
        "two members; below 0 the method is above its best member. Worst: over the ensembles."
    )
    methods = (
        "conc, avg, svd and gcca (tau 10) are the paper's; svd and gcca have the dimension of the largest member. "
        "auto is conc with the members' reliability as weights, all members but the best softly whitened on the corpus "
        "that the weights were found on; the others that are weighted have the weights of members as they are. The "
        "autoencoder is not among them: `ensembed reproduce` has it."
    )
    chosen = (
        "No score was used to fit or to weight anything. The constants of the estimate were chosen on STS-B dev, with "
        "weights found on all three corpora, so the results on dev are no independent evidence. How fast weights fall "
        "below the best member (`BELOW`, `EQUAL`) was settled on dev after a look at the test sets had shown that a "
        "slower fall loses with gte-small."
    )
    weights = (
        "Weights are those of the members' cosines, with 95% bootstrap intervals; vectors are scaled by their roots."
    )
    notes = [
        f"{scoring} Mean of the test sets: {tests}.",
        f"Text: {ensembles.text}.",
        f"Encoders: {dims}; revisions and hashes are in the data beside this page.",
        regret,
        f"At or above: both correlations, {100 * NOISE:g} allowed for noise.",
        methods,
        f"Everything was fitted, and reliability was found, on {first.sentences} sentences: {first.what}.",
        *(f"{case.name}: {case.what}, {case.sentences} sentences." for case in others),
        chosen,
        weights,
    ]
    missing = [f"{case.name} is without {', '.join(case.missing)}." for case in ensembles.datasets if case.missing]
    return [*notes, *missing]


def other_corpora() -> list[NamedCorpus]:
    """The first lines of further corpora, where they are in a data folder."""
    ensembles = []
    for name, file in _OTHER_CORPORA.items():
        places = [path for folder in data_dirs() if (path := folder / "corpus" / file).is_file()]
        if places:
            lines = list(islice(TextCorpus(places[0]), _LINES))
            ensembles.append(NamedCorpus(name, f"the first {_LINES} lines of {file}", ListCorpus(lines)))
    return ensembles


def main(out: Path = Path("results"), *, fresh: bool = False) -> None:
    """Print the tables and write `ensembles.md` and `ensembles.json`."""
    with bars() as progress:
        pull([*MEMBERS, "stsb"], progress=progress)
        corpora = [*open_corpora([STSB_TRAIN]), *other_corpora()]
        laboratory = Laboratory.prepare(
            Ensemble(MEMBERS, progress=progress),
            {case.name: case.corpus for case in corpora},
            find_available(),
            store=ViewStore(wait=600),
            notebook=Notebook(cache_dir() / "ensembles", fresh, progress),
            progress=progress,
        )
        ensembles = Trials(laboratory, corpora, EXAMPLES, [FIRST]).run()
    print(text(ensembles))
    write_results(out, "ensembles", page(ensembles), to_json(Ensembles, ensembles).decode())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog=_COMMAND, description="Ensembles of two to four of eight encoders.")
    parser.add_argument("--fresh", action="store_true", help="compute again what was computed before")
    run(partial(main, fresh=parser.parse_args().fresh))
