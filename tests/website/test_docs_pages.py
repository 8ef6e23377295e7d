"""The pages: pictures are those that the code draws, commands and options exist, examples run, links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from ensembed.cli import cli
from website.pictures import FOLDER, pictures
from website.release import readme_commands

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def test_pictures_are_those_that_the_code_draws() -> None:
    drawn = pictures()
    assert {path.name for path in FOLDER.iterdir()} == set(drawn)
    for name, svg in drawn.items():
        assert (FOLDER / name).read_text() == svg, "run: python -m website.pictures"


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


@pytest.mark.parametrize("name", ["start/faq.md", "reference/errors.md"])
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


def test_the_release_tries_the_commands_of_the_readme() -> None:
    commands = readme_commands((ROOT / "README.md").read_text())
    assert len(commands) >= 5
    assert all(line.startswith("ensembed ") for line in commands)
