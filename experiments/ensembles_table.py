"""`python -m experiments.ensembles_table`: every ensemble of five encoders, with the paper's methods and with weights.

Pulls the encoders and STS-B, finds on the unlabelled sentences of STS-B train how far each member is trusted, fits
every method on the same sentences, and writes `ensembles.md` and `ensembles.json`. What is finished is kept: run it
again after an interruption. `--fresh` finds out everything anew.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

from ensembed.corpora.corpus import ListCorpus, TextCorpus
from ensembed.errors import EnsembedError
from ensembed.fetch.fetcher import pull
from ensembed.models.ensemble import Ensemble
from ensembed.models.named_ensembles import ENSEMBLES
from ensembed.paper.findings import DEV, MEAN, METRICS
from ensembed.paper.laboratory import Laboratory
from ensembed.paper.named_corpora import STSB_TRAIN, NamedCorpus, open_corpora
from ensembed.paper.notebook import Notebook, to_json
from ensembed.sts.find import find_available
from ensembed.sts.protocol import Score
from ensembed.support.atomic_files import write_atomically
from ensembed.support.machine import cache_dir, data_dirs
from ensembed.support.progress import bars
from ensembed.support.text_tables import markdown_table, text_table
from ensembed.views import ViewStore
from experiments.ensembles_found import AUTO, FALL, NOISE, Elsewhere, Ensembles, Regrets, Trust, level
from experiments.ensembles_trials import PAPER, Trials

MEMBERS = ("gte-small", "minilm", "use-lite", "wordllama", "glove")
EXAMPLES = (ENSEMBLES["default"], ("gte-small", "minilm"))
"""Ensembles that useless members are added to: near-equals, and a pair, about which agreement alone says nothing."""

_COMMAND = "python -m experiments.ensembles_table"
_OTHER_CORPORA = {
    "wikipedia": "leipzig_eng_wikipedia_2016_raw.txt.gz",
    "news": "leipzig_eng_news_2016_raw.txt.gz",
}
_LINES = 6000
# Members within this of each other are near-equals, where an ensemble has most to give.
_NEAR = 0.03

Cells = tuple[list[str], list[list[str]]]


def summary(found: Ensembles) -> list[str]:
    """The sentences worth repeating elsewhere, all of them computed."""
    ours, many = found.regrets(AUTO), len(found.combined)
    paper = [label for label in found.methods if label in PAPER]
    least = min(paper, key=lambda label: sum(vars(found.regrets(label).mean).values()))
    on_dev = found.regrets(AUTO, DEV)
    ours_says = (
        f"auto is at or above the best member, {100 * NOISE:g} allowed for noise, in {ours.level} of {many} ensembles "
        f"on the mean of the test sets (mean regret {signed(ours.mean)}, worst {signed(ours.worst)}), and in "
        f"{on_dev.level} of {many} on STS-B dev (mean {signed(on_dev.mean)}, worst {signed(on_dev.worst)})."
    )
    paper_says = (
        f"Of the paper's methods {least} does best: {found.regrets(least).level} of {many}, mean regret "
        f"{signed(found.regrets(least).mean)}, worst {signed(found.regrets(least).worst)}."
    )
    lines = [ours_says, paper_says, _resisting(found), _beaten(found, paper)]
    right = sum(found.best_member(one.members, "pearson")[0] == one.trust.best for one in found.combined)
    lines.append(f"The member trusted most, found without labels, is the best by Pearson's r in {right} of {many}.")
    if near := [one for one in found.combined if _gap(found, one.members) <= _NEAR]:
        gains = Regrets(tuple(found.regret(one.members, one.method(AUTO)) for one in near))
        lines.append(
            f"Where the two best members are within {100 * _NEAR:g} points of each other ({len(near)} ensembles), auto "
            f"is above the best by {_points(-gains.mean.pearson)}/{_points(-gains.mean.spearman)} in the mean."
        )
    if changes := [found.change(one) for one in found.additions]:
        worst = Score(min(one.pearson for one in changes), min(one.spearman for one in changes))
        kept = sum(min(one.pearson, one.spearman) >= -FALL for one in changes)
        lines.append(
            f"With a useless member added auto falls by no more than {100 * FALL:g} in {kept} of {len(changes)} cases; "
            f"the largest change downwards is {signed(worst)}."
        )
    for corpus in found.corpora[1:]:
        there = [one for one in found.elsewhere if one.corpus == corpus.name and one.seed == 0]
        regrets = _regrets_of(found, there)
        same = sum(one.trust.best == found.of(one.members).trust.best for one in there)
        lines.append(
            f"With weights found on {corpus.what} instead, the same member is trusted most in {same} of {len(there)} "
            f"ensembles, and {regrets.level} are at or above their best member (mean regret {signed(regrets.mean)}, "
            f"worst {signed(regrets.worst)}){_below(there, regrets)}."
        )
    return lines


def page(found: Ensembles) -> str:
    """Everything as Markdown."""
    head = f"# Every ensemble of five encoders\n\nPrinted and written by `{_COMMAND}`.\n\n"
    facts = ", ".join(f"{key} {value}" for key, value in found.provenance.items())
    notes = "\n".join(f"- {note}" for note in (*_notes(found), f"Made with {facts}."))
    body = _sections(found, markdown_table, "## {}\n\n{}")
    return head + "\n".join(f"- {line}" for line in summary(found)) + f"\n\n{body}\n\n{notes}\n"


def text(found: Ensembles) -> str:
    """Everything for a terminal."""
    lines = [*summary(found), "", *_notes(found)]
    return _sections(found, text_table, "{}\n\n{}") + "\n\n" + "\n".join(lines)


def signed(score: Score) -> str:
    """A difference of scores, in points.

    Example:
        >>> signed(Score(0.012, -0.0005))
        '+1.20/-0.05'
    """
    return f"{_points(score.pearson)}/{_points(score.spearman)}"


def _points(difference: float) -> str:
    return f"{100 * difference + 0.0:+.2f}".replace("-0.00", "+0.00")  # no zero is less than another


def _sections(found: Ensembles, table: Callable[..., str], form: str) -> str:
    sections: dict[str, Cells] = {
        "The members": _singles(found),
        "Regret by method, mean of the test sets": _by_method(found, MEAN),
        "Regret by method, STS-B dev": _by_method(found, DEV),
        "Scores of every ensemble, mean of the test sets": _scores(found),
        "Regret of every ensemble, mean of the test sets": _each(found, MEAN),
        "Regret of every ensemble, STS-B dev": _each(found, DEV),
        "Weights that auto found": _weights(found),
        "Useless members added": _useless(found),
        "Weights found on other corpora and under other seeds": _elsewhere(found),
        "Weights of some ensembles there": _elsewhere_weights(found),
    }
    return "\n\n".join(form.format(title, table(*cells)) for title, cells in sections.items() if cells[1])


def _singles(found: Ensembles) -> Cells:
    names = [one.name for one in found.datasets if one.name != DEV]
    rows = [[row.label, str(row.dim), *(str(row.score(name)) for name in (*names, MEAN, DEV))] for row in found.singles]
    return ["", "dim", *names, "mean", DEV], rows


def _by_method(found: Ensembles, where: str) -> Cells:
    many = len(found.combined)
    rows = []
    for label in found.methods:
        regrets = found.regrets(label, where)
        rows.append([label, signed(regrets.mean), signed(regrets.worst), f"{regrets.level} of {many}"])
    return ["", "mean regret", "worst regret", "at or above"], rows


def _scores(found: Ensembles) -> Cells:
    rows = []
    for one in found.combined:
        best = list(dict.fromkeys(found.best_member(one.members, metric)[0] for metric in METRICS))
        scores = [str(one.method(label).score(MEAN)) for label in found.methods]
        rows.append([one.name, ", ".join(best), one.trust.best, str(found.best_score(one.members)), *scores])
    return ["", "best member", "trusted most", "its score", *found.methods], rows


def _each(found: Ensembles, where: str) -> Cells:
    rows = []
    for one in found.combined:
        regrets = {label: found.regret(one.members, one.method(label), where) for label in found.methods}
        verdict = "yes" if level(regrets[AUTO]) else "no"
        rows.append([one.name, *(signed(regret) for regret in regrets.values()), verdict])
    return ["", *found.methods, "auto at or above"], rows


def _weights(found: Ensembles) -> Cells:
    names = [one.name for one in found.members]
    rows = [[one.name, *_placed(names, one.members, one.trust)] for one in found.combined]
    return ["", *names], rows


def _placed(names: Sequence[str], members: Sequence[str], trust: Trust) -> list[str]:
    """A cell per name: the weight and its interval, or nothing."""
    cells = {
        name: f"{weight:.2f} ({low:.2f} to {high:.2f})"
        for name, weight, low, high in zip(members, trust.weights, trust.weights_low, trust.weights_high, strict=True)
    }
    return [cells.get(name, "") for name in names]


def _useless(found: Ensembles) -> Cells:
    rows = []
    for one in found.additions:
        weights = ", ".join(f"{weight:.2f}" for weight in one.trust.weights)
        scores = [str(found.of(one.members).method(AUTO).score(MEAN)), str(one.auto.score(MEAN))]
        change = found.change(one)
        kept = "yes" if min(change.pearson, change.spearman) >= -FALL else "no"
        changes = [signed(change), signed(found.change(one, DEV)), kept]
        rows.append([" + ".join(one.members), one.added, weights, *scores, *changes])
    within = f"falls by {100 * FALL:g} at most"
    return ["", "added", "weights", "auto without", "auto with", "change", f"change, {DEV}", within], rows


def _elsewhere(found: Ensembles) -> Cells:
    rows = []
    for corpus, seed in dict.fromkeys((one.corpus, one.seed) for one in found.elsewhere):
        there = [one for one in found.elsewhere if (one.corpus, one.seed) == (corpus, seed)]
        same = sum(one.trust.best == found.of(one.members).trust.best for one in there)
        regrets = _regrets_of(found, there)
        count = f"of {len(there)}"
        cells = [f"{same} {count}", signed(regrets.mean), signed(regrets.worst), f"{regrets.level} {count}"]
        rows.append([f"{corpus}, seed {seed}", *cells])
    return ["", "same member trusted most", "auto: mean regret", "worst regret", "at or above"], rows


def _elsewhere_weights(found: Ensembles) -> Cells:
    names = [one.name for one in found.members]
    again = dict.fromkeys(one.members for one in found.elsewhere if one.seed != 0)
    rows = [
        [f"{' + '.join(members)}: {one.corpus}, seed {one.seed}", *_placed(names, members, one.trust)]
        for members in again
        for one in found.elsewhere
        if one.members == members
    ]
    return ["", *names], rows


def _regrets_of(found: Ensembles, there: Sequence[Elsewhere]) -> Regrets:
    return Regrets(tuple(found.regret(one.members, one.auto) for one in there))


def _below(there: Sequence[Elsewhere], regrets: Regrets) -> str:
    """Which are not at or above their best member, and whom they trusted."""
    both = zip(there, regrets.each, strict=True)
    names = [f"{' + '.join(one.members)} (trusts {one.trust.best})" for one, regret in both if not level(regret)]
    return f"; not {', '.join(names)}" if names else ""


def _gap(found: Ensembles, members: Sequence[str]) -> float:
    """How far the second best of these members is behind the best, by Pearson's r."""
    scores = sorted(row.score(MEAN).pearson for row in found.singles if row.label in members)
    return scores[-1] - scores[-2]


def _resisting(found: Ensembles) -> str:
    resisting = found.resisting()
    if not resisting:
        return "No ensemble resists."
    each = ", ".join(f"{one.name} ({signed(found.regret(one.members, one.method(AUTO)))})" for one in resisting)
    return f"Below their best member by more than {100 * NOISE:g}: {each}."


def _beaten(found: Ensembles, paper: Sequence[str]) -> str:
    """Where a method of the paper does better than auto in both correlations, by more than noise."""
    better = []
    for one in found.combined:
        ours = one.method(AUTO).score(MEAN)
        gains = {label: one.method(label).score(MEAN) for label in paper}
        gains = {k: Score(v.pearson - ours.pearson, v.spearman - ours.spearman) for k, v in gains.items()}
        label = max(gains, key=lambda name: min(gains[name].pearson, gains[name].spearman))
        if min(gains[label].pearson, gains[label].spearman) > NOISE:
            better.append(f"{one.name} ({label} {signed(gains[label])})")
    if not better:
        return f"No method of the paper is above auto by more than {100 * NOISE:g} in both correlations anywhere."
    among = f"{len(better)} of {len(found.combined)}"
    return f"A method of the paper is above auto by more than {100 * NOISE:g} in both, in {among}: {', '.join(better)}."


def _notes(found: Ensembles) -> list[str]:
    first, *others = found.corpora
    tests = ", ".join(one.name for one in found.datasets if one.name != DEV)
    dims = ", ".join(f"{one.name} ({one.dim})" for one in found.members)
    scoring = f"Pearson's r / Spearman's rho, x 100. Protocol: {found.protocol} over a year's sub-testsets."
    regret = (
        "Regret: the best member's correlation less the method's, each correlation on its own, so that the best may be "
        "two members; below 0 the method is above its best member. Worst: over the ensembles."
    )
    methods = (
        "conc, avg, svd and gcca (tau 10) are the paper's; svd and gcca have the dimension of the largest member. "
        "auto is conc with the members' reliability as weights, all members but the best softly whitened on the corpus "
        "that the weights were found on; the others that are weighted have the weights of members as they are. The "
        "autoencoder is not among them: `ensembed reproduce` has it for the default ensemble."
    )
    chosen = (
        "No score was used to fit or to weight anything. The constants of the estimate were chosen on STS-B dev, so "
        "what is said of dev is no independent evidence. That members which lead alike are told apart by the words was "
        "added after an earlier form of this page had shown a failure on news (minilm + wordllama, on the test sets), "
        "so that the line about news is none for that rule."
    )
    weights = (
        "Weights are those of the members' cosines, with 95% bootstrap intervals; vectors are scaled by their roots."
    )
    notes = [
        f"{scoring} Mean of the test sets: {tests}.",
        f"Text: {found.text}.",
        f"Encoders: {dims}; revisions and hashes are in the data beside this page.",
        regret,
        f"At or above: both correlations, {100 * NOISE:g} allowed for noise.",
        methods,
        f"Everything was fitted, and reliability was found, on {first.sentences} sentences: {first.what}.",
        *(f"{one.name}: {one.what}, {one.sentences} sentences." for one in others),
        chosen,
        weights,
    ]
    missing = [f"{one.name} is without {', '.join(one.missing)}." for one in found.datasets if one.missing]
    return [*notes, *missing]


def other_corpora() -> list[NamedCorpus]:
    """The first lines of further corpora, where they are in a data folder."""
    found = []
    for name, file in _OTHER_CORPORA.items():
        places = [path for folder in data_dirs() if (path := folder / "corpus" / file).is_file()]
        if places:
            lines = list(islice(TextCorpus(places[0]), _LINES))
            found.append(NamedCorpus(name, f"the first {_LINES} lines of {file}", ListCorpus(lines)))
    return found


def main(out: Path = Path("results"), *, fresh: bool = False) -> None:
    """Print the tables and write `ensembles.md` and `ensembles.json`."""
    with bars() as progress:
        pull([*MEMBERS, "stsb"], progress=progress)
        corpora = [*open_corpora([STSB_TRAIN]), *other_corpora()]
        laboratory = Laboratory.prepare(
            Ensemble(MEMBERS, progress=progress),
            {one.name: one.corpus for one in corpora},
            find_available(),
            store=ViewStore(wait=600),
            notebook=Notebook(cache_dir() / "ensembles", fresh, progress),
            progress=progress,
        )
        found = Trials(laboratory, corpora, EXAMPLES).run()
    print(text(found))
    out.mkdir(exist_ok=True)
    written = out / "ensembles.md", out / "ensembles.json"
    write_atomically(written[0], page(found).encode())
    write_atomically(written[1], to_json(Ensembles, found, indent=1))
    print(f"\nwritten: {written[0]}, {written[1]}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog=_COMMAND, description="Every ensemble of five encoders.")
    parser.add_argument("--fresh", action="store_true", help="find out again what was found before")
    try:
        main(fresh=parser.parse_args().fresh)
    except EnsembedError as error:
        sys.exit(f"error: {error}")
