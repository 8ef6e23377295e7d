"""A saved model whose member has moved, in every command that opens a model: `--encoder OLD=NEW`."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from ensembed import load
from ensembed.cli import SUMMARIES, cli, main
from ensembed.errors import InputError
from ensembed.models.opening import open_model
from ensembed.search import Index
from ensembed.serve import uvicorn_server

SENTENCES = [f"the {i} sentences of {i % 7} others" for i in range(240)]
VECTORS = "".join(
    f"{word} {i} {i % 3} {i % 5}\n" for i, word in enumerate(["the", "sentences", "of", "others", "dog"], 1)
)


@pytest.fixture
def moved(tmp_path: Path) -> tuple[Path, str]:
    """Return a folder with a corpus, a model, two indexes and pairs, and the OLD=NEW of a member that has moved."""
    old, new = tmp_path / "old.txt", tmp_path / "new.txt"
    old.write_text(VECTORS)
    (tmp_path / "corpus.txt").write_text("\n".join(SENTENCES))
    (tmp_path / "pairs.tsv").write_text("".join(f"{i}\ta dog\tthe {i} sentences\n" for i in range(4)))
    members = ["-e", f"words:{old}?pooling=mean", "-e", "demo?dim=6&seed=2"]
    corpus, model = str(tmp_path / "corpus.txt"), str(tmp_path / "model")
    assert main(["fit", corpus, *members, "--method", "conc", "-o", model, "-q"]) == 0
    assert main(["index", str(tmp_path / "index"), corpus, "--model", model, "-q"]) == 0
    assert main(["index", str(tmp_path / "other"), corpus, "--model", "demo", "-q"]) == 0
    old.rename(new)
    return tmp_path, f"words:{old}?pooling=mean=words:{new}?pooling=mean"


COMMANDS = (
    ["encode", "MODEL", "CORPUS", "--json"],
    ["similarity", "MODEL", "a dog", "the others"],
    ["evaluate", "MODEL", "demo", "--pairs", "PAIRS"],
    ["dedupe", "MODEL", "CORPUS", "--threshold", "0.9"],
    ["cluster", "MODEL", "CORPUS", "-k", "2"],
    ["compare", "MODEL", "demo", "--corpus", "CORPUS", "--rows", "60"],
    ["reliability", "CORPUS", "-e", "MODEL", "-e", "demo"],
    ["index", "INDEX", "CORPUS", "--again"],
    ["index", "INDEX", "CORPUS", "--again", "--model", "MODEL"],
    ["search", "INDEX", "a dog"],
    ["search", "INDEX", "a dog", "--model", "MODEL"],
    ["translate", "MODEL", "demo", "CORPUS", "--out", "OUT"],
    ["migrate", "OTHER", "--to", "MODEL", "--out", "OUT", "--yes"],
    ["distil", "MODEL", "CORPUS", "--report", "demo"],
    ["serve", "MODEL", "--port", "0"],
)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_moved_member_is_opened_by_its_new_name(
    capsys: pytest.CaptureFixture[str], moved: tuple[Path, str], command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, replacement = moved
    monkeypatch.setattr(uvicorn_server, "run", lambda *_arguments, **_settings: 0)  # the server stops at once
    places = {"MODEL": "model", "CORPUS": "corpus.txt", "PAIRS": "pairs.tsv", "INDEX": "index", "OTHER": "other"}
    places["OUT"] = "out"
    words = [str(folder / places[word]) if word in places else word for word in command]
    capsys.readouterr()
    assert main(words) != 0
    old = replacement.partition("=mean=")[0]
    assert f"If it was moved, pass --encoder {old}=mean=NEW" in capsys.readouterr().err
    assert main([*words, "--encoder", replacement]) == 0


def test_every_command_that_takes_a_moved_member_is_tried() -> None:
    context = click.Context(cli)
    commands = {name: cli.get_command(context, name) for name in SUMMARIES}
    metavars = {name: [str(one.metavar) for one in command.params] for name, command in commands.items() if command}
    takes = {name for name, words in metavars.items() if any("OLD=NEW" in word for word in words)}
    assert takes | {"reliability"} == {command[0] for command in COMMANDS}


def test_python_takes_the_same(moved: tuple[Path, str]) -> None:
    folder, replacement = moved
    expected = load(folder / "model", encoders=[replacement]).encode(["a dog"])
    assert (open_model(str(folder / "model"), encoders=[replacement]).encode(["a dog"]) == expected).all()
    index = Index.open(folder / "index", encoders=[replacement])
    assert len(index.search(["the others"], 2)[0]) == 2


def test_a_replacement_that_gives_other_vectors_is_refused(
    capsys: pytest.CaptureFixture[str], moved: tuple[Path, str]
) -> None:
    folder, replacement = moved
    (folder / "new.txt").write_text(VECTORS.replace("1", "7"))
    assert main(["similarity", str(folder / "model"), "a", "b", "--encoder", replacement]) == 1
    assert "is not the encoder this model was fitted on" in capsys.readouterr().err


@pytest.mark.parametrize("given", ["nosuch=demo", "demo", "words:old.txt"])
def test_a_replacement_of_no_member_is_an_error(
    capsys: pytest.CaptureFixture[str], moved: tuple[Path, str], given: str
) -> None:
    folder, replacement = moved
    model = str(folder / "model")
    for words in (
        ["similarity", model, "a", "b"],
        ["encode", model, str(folder / "corpus.txt"), "--json"],
        ["compare", model, "demo", "--corpus", str(folder / "corpus.txt"), "--rows", "60"],
    ):
        assert main([*words, "-e", replacement, "-e", given]) == 1
        assert f"{given!r} names no member of" in capsys.readouterr().err
    assert main(["similarity", "demo", "a", "b", "-e", "demo=demo"]) == 1
    assert "'demo' is no saved model" in capsys.readouterr().err
    with pytest.raises(InputError, match="'nosuch' names no member"):
        load(model, encoders={"nosuch": "demo"})


def test_a_replacement_with_other_files_is_warned_of(moved: tuple[Path, str]) -> None:
    folder, replacement = moved
    (folder / "new.txt").write_text(VECTORS + "unlike 1 2 3\n")
    with pytest.warns(RuntimeWarning, match=r"has other files than .* only \d+ sentences were compared"):
        load(folder / "model", encoders=[replacement])
