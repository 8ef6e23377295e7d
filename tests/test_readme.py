"""README and results tell the truth: figures are those that were measured, commands exist, Python runs."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path

import click
import numpy as np
import pytest

from ensembed import Ensemble
from ensembed.cli import cli
from ensembed.methods import METHODS
from ensembed.paper.findings import METRICS, OWN, Findings
from ensembed.paper.tables.table_notes import outcome

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
RESULTS = (ROOT / "docs" / "explanation" / "results.md").read_text()
WORDS = " ".join(RESULTS.split())
REPRODUCED = ROOT / "results" / "reproduce"
FINDINGS = Findings.from_json((REPRODUCED / "findings.json").read_bytes())


def test_the_table_is_the_one_that_its_command_wrote() -> None:
    rows = [line for line in RESULTS.splitlines() if line.startswith(("| system ", "| single:", "| meta:"))]
    assert len(rows) == 11
    assert set(rows) <= set((REPRODUCED / "tables" / "table2-main.md").read_text().splitlines())
    words = FINDINGS.command.split()
    corpora = [Path(corpus).name for option, corpus in pairwise(words) if option == "--corpus"]
    assert f"made with `{' '.join(f'--corpus {name}' for name in corpora)} --no-texts`" in WORDS
    assert "--no-texts" in WORDS


def test_it_says_by_how_much_every_method_beats_the_best_of_two_similar_members() -> None:
    on_mean = [one for one in FINDINGS.comparisons if one.dataset == "mean"]
    assert {outcome(one) for one in on_mean} == {"above"}
    assert {one.member for one in on_mean} == {"single:minilm"}
    gains = sorted(100 * one.difference for one in on_mean if one.label != OWN and one.metric == "pearson")
    assert f"all of the paper's methods beat it, by {gains[0]:.1f} to {gains[-1]:.1f} points" in WORDS
    own = [100 * one.difference for one in on_mean if one.label == OWN and one.metric == "pearson"]
    assert own[0] < gains[0]
    assert "That is less than any of the paper's methods gains here" in WORDS


def test_it_says_plainly_how_far_the_default_method_is_from_the_best_member() -> None:
    own = {(one.dataset, one.metric): one for one in FINDINGS.comparisons if one.label == OWN}
    r, rho = own["mean", "pearson"], own["mean", "spearman"]
    r_low, r_high, rho_low, rho_high = (f"{100 * x:+.1f}" for x in (r.low, r.high, rho.low, rho.high))
    by_rho = f"Spearman {100 * rho.difference:+.1f}, {rho_low} to {rho_high}"
    assert f"by {100 * r.difference:+.1f} (95% interval {r_low} to {r_high}; {by_rho})" in WORDS
    outcomes = {
        metric: [outcome(one) for (dataset, of), one in own.items() if of == metric and dataset != "mean"]
        for metric in METRICS
    }
    assert {metric: found.count("above") for metric, found in outcomes.items()} == {"pearson": 5, "spearman": 6}
    assert not any("below" in found for found in outcomes.values())
    [system] = [one for one in FINDINGS.systems if one.label == OWN]
    assert f"with {system.dim} dimensions" in WORDS
    [weight] = re.findall(r"weights: minilm 1, use-m3 ([\d.]+), ", system.note)
    assert f"gave `use-m3` a weight of {weight} beside its 1" in WORDS
    assert "it trusts minilm most" in system.note


def test_it_says_plainly_that_equal_weights_lose_with_unequal_members() -> None:
    rows = _table("ensembles.md", "## Scores of every ensemble, mean of the test sets")
    _, _, best, conc, avg, svd, gcca, auto, _ = rows["minilm + wordllama + use-lite"]
    assert f"conc has {conc}, avg {avg}, svd {svd} and gcca {gcca}, all below {best} of `minilm` alone" in WORDS
    assert f"`auto` has {auto}" in WORDS


def test_the_figures_of_the_pair_are_those_that_the_demo_wrote() -> None:
    rows = json.loads((ROOT / "results" / "demo-use-lite-wordllama.json").read_text())["rows"]
    means = {row["cells"]["system"]: row["cells"]["mean"] for row in rows if row["kind"] in ("single", "meta")}
    best, svd, ae, gcca, auto = (
        f"{100 * means[label]['pearson']:.1f}/{100 * means[label]['spearman']:.1f}"
        for label in ("single:wordllama", "meta:svd", "meta:ae", "meta:gcca", "meta:auto")
    )
    assert f"svd has {svd} and ae {ae}, where the best member has {best} (gcca {gcca}, `auto` {auto};" in WORDS
    assert means["single:wordllama"]["pearson"] < means["meta:auto"]["pearson"] < means["meta:svd"]["pearson"]


def test_every_command_and_option_it_names_exists() -> None:
    named = re.findall(r"^    ensembed (\w+)(.*)$", README, re.MULTILINE)
    assert len(named) >= 5
    for name, rest in named:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        options = {option for one in command.params for option in (*one.opts, *one.secondary_opts)}
        assert set(re.findall(r"(?<= )--?[a-z][a-z-]*", rest)) <= options


def test_every_method_is_in_the_table_of_the_guide() -> None:
    page = (ROOT / "docs" / "guides" / "fit.md").read_text()
    for name, method in METHODS.items():
        assert f"`{method.__name__}` (`{name}`)" in page


def test_the_short_table_has_the_figures_of_the_long_ones() -> None:
    systems = {one.label: one for one in FINDINGS.systems}
    costs = json.loads((REPRODUCED / "tables" / "cost.json").read_text())["rows"]
    times = {row["cells"]["system"]: row["cells"]["ms per sentence"] for row in costs}
    means = {row["cells"]["system"]: row["cells"]["mean"] for row in costs}
    for start, label in (
        ("| minilm, the best member |", "single:minilm"),
        ("| use-m3 |", "single:use-m3"),
        ("| the paper's GCCA |", "meta:gcca"),
        ("| the paper's SVD |", "meta:svd"),
        ("| ensembed's default, `auto` |", OWN),
    ):
        [line] = [line for line in README.splitlines() if line.startswith(start)]
        scores = f"{100 * means[label]['pearson']:.1f}/{100 * means[label]['spearman']:.1f}"
        assert line.replace("*", "").endswith(f"| {systems[label].dim} | {times[label]:.1f} | {scores} |")
    assert f"{times[OWN]:.1f} ms per sentence on two cores instead of {times['single:minilm']:.1f}" in README


def test_the_readme_has_two_screens() -> None:
    assert len(README.splitlines()) <= 110


def test_its_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [block] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    page = (ROOT / "docs" / "start" / "first_model.md").read_text()
    [longer] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    fits = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "guides" / "fit.md").read_text(), re.DOTALL)
    assert len(fits) == 2
    monkeypatch.chdir(tmp_path)
    words = ["dog", "cat", "fox", "man", "car"]
    Path("corpus.txt").write_text("\n".join(f"{a} {b} {c}" for a in words for b in words for c in words))
    members = '["demo?dim=8&seed=1", "demo?dim=6&seed=2", "demo?dim=4&seed=3"]'
    code = [text.replace('["minilm", "use-m3"]', members).replace("512", "5") for text in (block, longer, *fits)]
    encoded = np.random.default_rng(0).standard_normal((300, 1300))
    arrays = {f"{letter}{j}": encoded[:, 400 * j : 400 * j + 400] for letter in "XY" for j in (1, 2, 3)}
    names: dict[str, object] = {"Ensemble": Ensemble, **arrays}
    for text in code:
        exec(text.replace("1024", "256"), names)  # noqa: S102 - our own pages
    assert Path("my-model", "model.safetensors").exists()


def _table(page: str, title: str) -> dict[str, list[str]]:
    """The rows of the first table behind a title, by their first cell."""
    section = (ROOT / "results" / page).read_text().partition(title)[2].partition("\n## ")[0]
    return {row.strip("| ").split(" | ")[0]: row.strip("| ").split(" | ")[1:] for row in section.splitlines()}


def test_what_it_says_of_all_ensembles_is_what_their_table_says() -> None:
    def turned(regret: str) -> str:
        return regret.translate(str.maketrans("+-", "-+"))

    rows = _table("ensembles.md", "## Regret by method, mean of the test sets")
    dev = _table("ensembles.md", "## Regret by method, STS-B dev")
    names = {name: name for name in ("conc", "avg", "svd", "gcca", "auto")}
    for name, shown in (names | {"gcca, weighted": "gcca with the weights of `auto`"}).items():
        mean, worst, level = rows[name]
        assert f"| {shown} | {turned(mean)} | {turned(worst)} | {level} |" in WORDS
    assert f"({dev['auto'][2]}, gcca with its weights {dev['gcca, weighted'][2].split()[0]})" in WORDS
    level, _, many = rows["auto"][2].split()
    words = " ".join(README.split())
    assert f"in {level} of [{many} ensembles](results/ensembles.md)" in words
    assert f"the best of the paper's methods, gcca, in {rows['gcca'][2].split()[0]}" in words
    r, rho = (f"{-float(x):.1f}" for x in rows["auto"][0].split("/"))
    elsewhere = _table("ensembles.md", "## Weights found on other corpora")["news, seed 0"][1]
    r_news, rho_news = (f"{-float(x):.1f}" for x in elsewhere.split("/"))
    for name in ("README.md", "docs/index.md"):
        text = (ROOT / name).read_text()
        assert f"{r} points of Pearson's r ({rho} of Spearman's rho) over the best member on six STS test sets" in text
        assert f"the mean of [{many} ensembles]" in text
        assert f"with weights found on news {r_news} ({rho_news})" in text
    page = (ROOT / "results" / "ensembles.md").read_text()
    [first] = re.findall(r"Of the 26 ensembles of the encoders of version 0.1 \([^)]*\) (\d+) are", page)
    assert f"Of the 26 ensembles of the encoders that version 0.1 was made with, {first} are" in WORDS


def test_the_figures_of_the_current_weights_are_those_of_the_field() -> None:
    rows = _table("field.md", ", stsb-test\n")
    count, gain, _, above, _ = rows["auto"]
    similar = rows["auto, the two best within 4 points"][1]
    trust, when_not, members = (
        " ".join((ROOT / "docs" / name).read_text().split())
        for name in ("explanation/reliability.md", "explanation/when_not.md", "guides/members.md")
    )
    assert f"On STS-B test it is {above}, with a mean gain of {gain}" in trust
    assert f"in {above} of [{count} ensembles]" in when_not
    assert f"{similar} over the best member where the two best are within four points of each other, {gain}" in members


def test_the_figures_of_speed_are_those_that_were_measured() -> None:
    areas = json.loads((ROOT / "results" / "bench.json").read_text())["areas"]
    words = " ".join((ROOT / "docs" / "explanation" / "speed.md").read_text().split())

    def ratios(area: str) -> dict[tuple[str, str], float]:
        return {(one["what"], one["peer"].split(",")[0]): one["ratio"] for one in areas[area]["comparisons"]}

    single, small = (
        next(ratio for (what, peer), ratio in ratios("encode").items() if end in what and peer.startswith("sentence"))
        for end in ("float32", "int8")
    )
    data = areas["encode"]["data"]
    part = data["floor_s"] / data["seconds"]["ours, float32"]
    assert f"**{1 / single:.1f} times** as fast as sentence-transformers in float32 ({part:.0%} of" in words
    assert f"**{1 / small:.1f} times** in int8" in words
    many = next(ratio for (what, peer), ratio in ratios("cores").items() if "float32" in what and "sent" in peer)
    assert f"on sixteen cores **{1 / many:.1f} times** in float32" in words
    assert "16 cores" in areas["cores"]["notes"][-1]
    chosen = next(ratio for (what, _), ratio in ratios("ensemble").items() if "as the schedule chooses" in what)
    assert f"({chosen:.2f} times their sum)" in words
    known = next(ratio for (what, _), ratio in ratios("cache").items() if "all four" in what)
    assert f"**{round(1 / known, -2):,.0f} times** as fast as they are encoded" in words
    [stored] = [ratio for (what, _), ratio in ratios("moments").items() if "302,000" in what]
    assert f"{stored:.2f} times the bare product of its 302,000 x 2,136 numbers" in words
    device = json.loads((ROOT / "results" / "bench-device.json").read_text())
    assert f"take {device['moments and gcca, s']:.2f} s together" in words
