"""Every command on a narrow terminal, on one without colours, and into a pipe that nobody reads; `ensembed help`."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from ensembed.cli import SUMMARIES, main
from ensembed.cli.exit_codes import UNREAD
from ensembed.support.progress import bars, lines

MEMBERS = ["-e", "demo?dim=8&seed=1,demo?dim=6&seed=2"]
# A command line of every command that can run here; the others show their help.
LINES: dict[str, list[str]] = {
    "encoders": ["encoders"],
    "data": ["data"],
    "compare": ["compare", "demo?dim=8&seed=1", "demo?dim=6&seed=2", "--corpus", "corpus.txt"],
    "reliability": ["reliability", "corpus.txt", *MEMBERS],
    "embed": ["embed", "corpus.txt", *MEMBERS],
    "fit": ["fit", "corpus.txt", *MEMBERS, "--method", "gcca", "--dim", "4", "--out", "new", "--force"],
    "encode": ["encode", "model", "corpus.txt"],
    "similarity": ["similarity", "model", "a dog that runs in the park of the town", "a cat", "a fox"],
    "dedupe": ["dedupe", "model", "corpus.txt", "--threshold", "0.9"],
    "evaluate": ["evaluate", "model", "demo", "--pairs", "pairs.tsv"],
    "index": ["index", "folder", "corpus.txt", "--again"],
    "search": ["search", "folder", "a dog that runs in the park", "-k", "5"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("terminals")
    words = [f"the {who} {does} near {place} number {i}" for i in range(4) for who in ("dog", "cat", "fox", "old man")
             for does in ("runs", "sleeps") for place in ("a river that nobody knows", "the town")]  # fmt: skip
    (folder / "corpus.txt").write_text("\n".join(words))
    (folder / "pairs.tsv").write_text("".join(f"{i % 5}\t{a}\t{b}\n" for i, (a, b) in enumerate(pairwise(words))))
    here = Path.cwd()
    os.chdir(folder)
    try:
        assert main(["fit", "corpus.txt", *MEMBERS, "--method", "conc", "--out", "model", "--quiet"]) == 0
        assert main(["index", "folder", "corpus.txt", "--model", "model", "--quiet"]) == 0
    finally:
        os.chdir(here)
    return folder


@pytest.fixture(autouse=True)
def _inside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


@pytest.fixture
def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[str]], str]:
    """Run a command line with a terminal for its output, and return what it wrote."""

    def run(arguments: list[str]) -> str:
        master, slave = pty.openpty()
        shown = bytearray()

        def read() -> None:
            while True:
                try:
                    part = os.read(master, 65536)
                except OSError:  # the other end was closed
                    return
                shown.extend(part)

        reader = threading.Thread(target=read)
        reader.start()
        with open(slave, "w", encoding="utf-8") as terminal, monkeypatch.context() as patch:  # noqa: PTH123 - a number
            patch.setattr(sys, "stdout", terminal)
            patch.setattr(sys, "stderr", terminal)
            code = main(arguments)
        reader.join(30)
        os.close(master)
        text = shown.decode()
        assert code == 0, text
        return text

    return run


def _line(name: str) -> list[str]:
    return LINES.get(name, [name, "--help"])


@pytest.mark.parametrize("name", SUMMARIES)
def test_without_colours_nothing_moves_the_cursor(
    name: str, on_terminal: Callable[[list[str]], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    shown = on_terminal(_line(name))
    assert shown.strip()
    assert "\x1b" not in shown
    assert not re.search(r"\r(?!\n)", shown)


def test_the_question_of_migrate_shows_its_answers_beside_bars(
    on_terminal: Callable[[list[str]], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("many.txt").write_text("\n".join(f"w{i % 20} x{i % 31} y{i}" for i in range(300)))
    assert main(["index", "old", "many.txt", "--model", "demo?dim=12", "--quiet"]) == 0
    answer = io.StringIO("y\n")
    monkeypatch.setattr(answer, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stdin", answer)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    shown = on_terminal(["migrate", "old", "--to", "demo?dim=8&seed=3", "--out", "new-index", "--sample", "300"])
    assert "Go on (y or n, the default)?" in re.sub("\x1b\\[[0-9;?]*[a-zA-Z]", "", shown)


@pytest.mark.parametrize("columns", [30, 50])
@pytest.mark.parametrize("name", SUMMARIES)
def test_tables_fit_a_narrow_terminal(
    name: str, columns: int, on_terminal: Callable[[list[str]], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(columns))
    shown = on_terminal(_line(name)).replace("\r\n", "\n")
    if name not in LINES:
        return  # click wraps the help; examples stay on one line, so that they can be copied
    rules = [line for line in shown.split("\n") if re.fullmatch(r"-+(  -+)*", line)]
    assert all(len(line) <= columns for line in rules), shown
    table = shown.partition("\n\n")[0] if rules else ""
    assert all(len(line) <= columns or " " not in line.strip() for line in table.split("\n")), shown


@pytest.fixture
def unread() -> Iterator[io.TextIOWrapper]:
    """A standard output whose reader has gone."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    stream = io.TextIOWrapper(os.fdopen(write_end, "wb"), encoding="utf-8")
    yield stream
    with open(os.devnull, "wb") as nothing:  # noqa: PTH123 - not a path
        os.dup2(nothing.fileno(), stream.fileno())
    stream.close()


@pytest.mark.parametrize("name", [*SUMMARIES, "help"])
def test_an_output_that_nobody_reads_ends_quietly(
    name: str, unread: io.TextIOWrapper, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", unread)
        code = main(["help"] if name == "help" else _line(name))
        errors = sys.stderr
        if errors is not sys.__stderr__ and hasattr(errors, "_wrapped"):  # click's
            patch.setattr(sys, "stderr", errors._wrapped)
    assert code == UNREAD
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", ["encoders", "compare"])
def test_head_ends_a_command_without_noise(name: str) -> None:
    words = " ".join(f"'{word}'" for word in _line(name))
    shell = f'"{sys.executable}" -m ensembed {words} | head -n 1 > /dev/null; echo "${{PIPESTATUS[0]}}"'
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() in ("0", "141")
    assert done.stderr == ""


@pytest.mark.parametrize("words", [[], ["fit"], ["data", "fetch"]])
def test_help_is_a_command(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", *words]) == 0
    shown = capsys.readouterr().out
    assert main([*words, "--help"]) == 0
    assert capsys.readouterr().out == shown
    assert main(["help", "nonsense"]) == 2
    assert "No such command 'nonsense'" in capsys.readouterr().err


def test_lines_tell_the_progress_where_bars_cannot(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    with bars(enabled=True) as progress:
        for done in range(0, 101, 20):
            progress(f"minilm · loss 0.{done}", done, 100)
    assert capsys.readouterr().err == "minilm · loss 0.100 100/100\n"
    often = lines(seconds=0.0)
    often("pull", 3, None)
    often("pull", 2_000_000, 4_000_000)
    assert capsys.readouterr().err == "pull 3\npull 2.0M/4.0M\n"
