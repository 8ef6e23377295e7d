"""The pages: pictures are those that the code draws, commands and options exist, examples run, links lead somewhere."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click
import numpy as np
import pytest

from ensembed.cli import cli
from ensembed.fetch.catalog import catalog
from website.pictures import FOLDER, cost, pictures
from website.release import readme_commands

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def test_pictures_are_those_that_the_code_draws() -> None:
    drawn = pictures()
    assert {path.name for path in FOLDER.iterdir()} == set(drawn)
    for name, svg in drawn.items():
        assert (FOLDER / name).read_text() == svg, "run: python -m website.pictures"


def test_the_picture_of_cost_has_every_system_at_its_place() -> None:
    table = json.loads((ROOT / "results" / "reproduce" / "tables" / "cost.json").read_text())
    cells = [row["cells"] for row in table["rows"] if row["cells"]["mean"]]
    svg = cost(table)
    places = [(float(x), float(y)) for x, y in re.findall(r'<circle class="\w+" cx="([\d.]+)" cy="([\d.]+)"', svg)]
    assert len(places) == len(cells)
    for one in cells:
        assert f">{re.split('[:/]', one['system'])[-1]} {100 * one['mean']['pearson']:.1f}<" in svg
    # One line through all points says that both axes are true to the figures.
    times = np.log10([one["ms per sentence"] for one in cells])
    scores = [one["mean"]["pearson"] for one in cells]
    for drawn, figures, sign in (
        (sorted(x for x, _ in places), sorted(times), 1),
        (sorted(y for _, y in places), sorted(scores, reverse=True), -1),
    ):
        assert np.corrcoef(drawn, figures)[0, 1] * sign > 0.99999
    assert "2 cores" in svg  # as its provenance says


def test_names_in_the_picture_of_cost_do_not_cover_each_other() -> None:
    svg = pictures()["cost.svg"]
    drawn = re.findall(r'<text x="([\d.]+)" y="([\d.]+)" text-anchor="(\w+)">([^<]+)<', svg)
    boxes = []
    for x, y, anchor, label in drawn:
        left = float(x) - 8 * len(label) * (anchor == "end")  # 8 units for a letter are more than it takes
        boxes.append((left, left + 8 * len(label), float(y)))
    for i, (left, right, y) in enumerate(boxes):
        for other_left, other_right, other_y in boxes[:i]:
            assert abs(y - other_y) >= 14 or right <= other_left or other_right <= left


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_and_option_of_a_page_exists(page: Path) -> None:
    text = re.sub(r" *\\\n +", " ", page.read_text())
    shell = re.findall(r"^    (.*)$", text, re.MULTILINE)
    shell += [
        line
        for block in re.findall(r"^```bash\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        for line in block.split("\n")
    ]
    for line in shell:
        words = re.match(r"(?:\w+=\S+ )*ensembed ([a-z]\w*)(.*)$", line)
        if words is None:
            continue
        name, rest = words.groups()
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        while isinstance(command, click.Group) and (word := re.match(r" (\w+)", rest)):
            command = command.commands[word[1]]
        options = {option for one in command.params for option in (*one.opts, *one.secondary_opts)} | {"--help"}
        code = rest.partition("  #")[0].partition(" | ")[0]
        code = re.sub(r"\"[^\"]*\"|'[^']*'", "TEXT", code)
        assert set(re.findall(r"(?<= )--[a-z][a-z-]*", code)) <= options


@pytest.mark.parametrize("name", ["start/faq.md", "reference/errors.md", "guides/plugins.md"])
def test_examples_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = _BLOCK.findall((ROOT / "docs" / name).read_text())
    assert blocks
    for block in blocks:
        exec(block, {})  # noqa: S102 - our own page


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"])
def test_links_of_files_outside_the_site_lead_to_files(name: str) -> None:
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", (ROOT / name).read_text())
    assert [link for link in links if ":" not in link and not (ROOT / link).exists()] == []


def test_the_page_of_questions_lists_every_encoder_with_size_and_licence() -> None:
    page = (ROOT / "docs" / "start" / "faq.md").read_text()
    lines = [f"| `{e.name}` | {e.size / 1e6:.0f} | {e.licence} |" for e in catalog().values() if e.dim]
    assert "\n".join(lines) in page


def test_the_release_tries_the_commands_of_the_readme() -> None:
    commands = readme_commands((ROOT / "README.md").read_text())
    assert len(commands) >= 5
    assert all(line.startswith("ensembed ") for line in commands)
    assert any(line.startswith("ensembed demo") for line in commands)
