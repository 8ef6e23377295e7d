"""What the command line says when something is wrong: an exit code and a message, never a traceback."""

from __future__ import annotations

import gzip
import io
import json
import os
import shlex
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from filelock import FileLock
from full_disk import full_disk

from ensembed import Ensemble, load
from ensembed.cli import main
from ensembed.cli.similarity import _read_pairs
from ensembed.errors import UnknownEncoderError
from ensembed.views import ViewStore

TORN = gzip.compress(b"a sentence\n", mtime=0)[:5]
# A whole header, and then blocks of no known kind: zlib's error, not gzip's.
DAMAGED = gzip.compress(b"a sentence\n", mtime=0)[:10] + b"\xff" * 20
MEMBERS = ["-e", "demo?dim=8&seed=1", "-e", "demo?dim=6&seed=2"]


@pytest.fixture
def fails(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command line that must fail, and return what it says."""

    def check(*arguments: str | Path, code: int = 1) -> str:
        capsys.readouterr()
        found = main([str(argument) for argument in arguments])
        error = capsys.readouterr().err
        assert found == code, error
        assert "Traceback" not in error
        return error

    return check


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    """Set what is on standard input."""
    return lambda data: monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text("".join(f"sentence {i} of {i % 7} and {i % 5}\n" for i in range(40)))
    return path


@pytest.mark.parametrize("command", ["encode", "dedupe", "cluster", "distil"])
def test_a_file_before_the_model_is_put_behind_it(
    fails: Callable[..., str], corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    folder = tmp_path / "model"
    Ensemble(["demo?dim=8"]).fit(["a dog", "a cat"], "conc").save(folder)
    names = "TEACHER comes before CORPUS" if command == "distil" else "MODEL comes before FILE"
    out = ["--out", tmp_path / "out.npy"] if command in ("encode", "distil") else []
    # As in click 8.1, whose `make_metavar` takes no context.
    monkeypatch.setattr(click.Argument, "make_metavar", lambda argument: argument.human_readable_name)
    monkeypatch.setattr(click.Argument, "get_usage_pieces", lambda argument, _: [argument.make_metavar()])
    for model in ("demo", folder):
        assert f"{names}: ensembed {command} {model} {corpus}" in fails(command, corpus, model, *out, code=2)


def test_an_index_behind_what_is_searched_or_indexed_is_put_before_it(
    fails: Callable[..., str], corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["index", "my-index", str(corpus), "--model", "demo", "-q"]) == 0
    said = fails("search", "sentence 3", "my-index", code=2)
    assert "FOLDER comes before the queries: ensembed search my-index 'sentence 3'" in said
    said = fails("index", corpus, "my-index", "--model", "demo", code=2)
    assert f"comes before FILE: ensembed index my-index {corpus}" in said
    assert "my-indx is not a search index (did you mean 'my-index'?)" in fails("search", "my-indx", "sentence 3")


def test_a_text_in_the_place_of_a_file_or_a_model_says_what_to_type(
    fails: Callable[..., str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = fails("encode", "demo", "A dog's life.")
    pipe = said.partition("; to encode a text, write ")[2]
    assert shlex.split(pipe) == ["echo", "A dog's life.", "|", "ensembed", "encode", "demo"]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"A dog's life.\n")))
    assert main(shlex.split(pipe)[4:]) == 0  # as the hint says
    assert "A dog's life." in capsys.readouterr().out
    assert "echo" not in fails("encode", "demo", "sentences.txt")
    assert "'.' is a folder, not a file" in fails("encode", "demo", ".")
    assert 'ensembed similarity minilm "A dog runs."' in fails("similarity", "A dog runs.", "A cat sleeps.", code=2)
    for command in (
        ["similarity", "A dog runs.", "A cat sleeps.", "Stocks fell."],
        ["encode", "A dog runs."],
        ["cluster", "A dog runs.", "-"],
        ["serve", "A dog runs.", "--port", "0"],
    ):
        assert "A model comes first, and 'A dog runs.' is a text" in fails(*command, code=2)


@pytest.mark.parametrize("text", ["A dog runs. " * 40, "dog " * 3000])
def test_a_long_text_is_answered_as_a_short_one_is(
    fails: Callable[..., str], corpus: Path, tmp_path: Path, text: str
) -> None:
    """No file can have such a name, which some functions report as an error."""
    index = tmp_path / "index"
    assert main(["index", str(index), str(corpus), "--model", "demo", "-q"]) == 0
    assert "; to encode a text, write echo" in fails("encode", "demo", text)
    assert "A model comes first" in fails("encode", text, code=2)
    assert "A model comes first" in fails("cluster", text, corpus, code=2)
    assert "MODEL comes before FILE" in fails("cluster", corpus, text, code=2)
    assert "FOLDER comes before the queries" in fails("search", text, index, code=2)
    assert "is not a search index" in fails("search", "no-index", text)


def test_options_of_other_programs_are_answered_by_what_to_type(fails: Callable[..., str], corpus: Path) -> None:
    for option, instead in (
        ("--truncate-dim", '"my-model?truncate_dim=256"'),
        ("--truncate_dim", '"my-model?truncate_dim=256"'),
        ("--model", "Models are arguments"),
        ("--normalize-embeddings", "NAME?normalize=true"),
        ("--device", "st:NAME?device=cuda"),
        ("--batch-size", "st:NAME?batch_size=8"),
        ("--input", "Files are arguments"),
    ):
        assert instead in fails("encode", "demo", corpus, option, "64", code=2)
    assert "NAME?" not in fails("encode", "demo", corpus, "--nonsense", "64", code=2)


def test_a_misspelt_folder_of_a_model_is_recognised(
    fails: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Ensemble(["demo?dim=8"]).fit(["a dog", "a cat"], "conc").save("my-model")
    (tmp_path / "my-mode").mkdir()  # no model
    for command in (["serve", "my-modl", "--port", "0"], ["similarity", "my-modl?truncate_dim=3", "a", "b"]):
        assert "(did you mean 'my-model'?)" in fails(*command)
    for command in (["my-modl", "--missing", "drop"], ["my-modl?truncate_dim=3", "--time-limit", "2"]):
        assert "(did you mean 'my-model'?)" in fails("serve", *command, "--port", "0")
    assert "did you mean" not in fails("serve", "my-mode", "--missing", "drop", "--port", "0")  # the folder exists
    assert f"(did you mean '{tmp_path}/my-model'?)" in fails("encode", f"{tmp_path}/my_model", "-")
    with pytest.raises(UnknownEncoderError, match="did you mean 'my-model'"):
        load("my-modl")


def test_a_misspelt_folder_with_a_space_is_not_taken_for_a_text(
    fails: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Ensemble(["demo?dim=8"]).fit(["a dog", "a cat"], "conc").save("my model")
    for command in (["similarity", "my modl", "a", "b"], ["encode", "my modl", "-"]):
        assert "(did you mean 'my model'?)" in fails(*command)
    assert "'models/my modl' is neither a folder with a saved model" in fails("similarity", "models/my modl", "a", "b")


def test_a_folder_beside_a_misspelt_one_may_be_unreadable(
    fails: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my-model").mkdir()
    stat = os.stat

    def refuse(path: str | Path, *args: Any, **options: Any) -> os.stat_result:  # noqa: ANN401 - passed on
        if "my-model" in str(path):
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, *args, **options)

    monkeypatch.setattr(os, "stat", refuse)  # root may read everything
    assert "'my-modl' is neither a folder with a saved model nor an encoder:" in fails(
        "similarity", "my-modl", "a", "b"
    )


def test_the_first_errors_of_a_newcomer_name_the_next_command(
    fails: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "ensembed demo" in fails("fit", "--out", "m", code=2)
    assert "ensembed demo" in fails("fit", "corpus.txt", "--out", "m")
    assert "ensembed demo" in fails("fit", "a text " * 100, "--out", "m")
    assert "to make a model: ensembed fit corpus.txt --out my-model" in fails(
        "similarity", "my-model", "a dog", "a cat"
    )
    assert "give one with a sentence a line" in fails("encode", "demo", "sentences.txt")
    Path("windows.txt").write_text("a dog\na cat\n", encoding="utf-16")
    assert "iconv -f utf-16 -t utf-8 OLD > NEW" in fails("fit", "windows.txt", "-e", "demo", "--out", "m")
    Path("one.txt").write_text("A dog runs. A cat sleeps.")
    said = fails("fit", "one.txt", *MEMBERS, "--out", "m")
    assert "write one a line" in said
    assert "count the same (--weights equal)" in said
    assert "Name a new folder for the result: --out my-model" in fails("fit", "one.txt", code=2)
    assert "ensembed encode MODEL one.txt" in fails("encode", "one.txt", code=2)
    assert "write score<TAB>text<TAB>text a line" in fails("evaluate", "demo", "--pairs", "one.txt")
    assert "there is no file 'pairs.tsv'; give one with score<TAB>" in fails("evaluate", "demo", "--pairs", "pairs.tsv")
    assert "Name a new folder for the result: --out my-model" in fails("fit", "one.txt", "--out", "one.txt", code=2)
    assert "Name a new folder" not in fails("encode", "demo", "one.txt", "--out", tmp_path, code=2)
    assert "as in -e minilm,use-m3" in fails("bench", code=2)
    Ensemble(["demo"]).fit([], "conc").save("my-model")
    assert "`ensembed index my-index FILE --model my-model`" in fails("search", "my-model", "a dog")
    assert "one.txt is not a folder; name another" in fails("fit", "one.txt", "-e", "demo", "--out", "one.txt/model")
    assert "--threshold 0.9" in fails("dedupe", "demo", "one.txt")
    assert "ensembed index new one.txt --model MODEL" in fails("index", "new", "one.txt", code=2)
    assert main(["index", "new", "one.txt", "--model", "demo", "-q"]) == 0
    assert "ensembed serve MODEL --index new" in fails("similarity", "new", "a dog", "a cat")
    Path("empty").mkdir()
    assert "ensembed demo" in fails("fit", "empty", *MEMBERS, "--out", "m")
    for command in (["embed"], ["distil", "demo", "--out", "m"], ["cluster", "demo"], ["dedupe", "demo"]):
        assert "ensembed demo" not in fails(*command, code=2)
        for corpus in ("corpus.txt", "empty"):
            members = ["-e", "demo"] if command == ["embed"] else []
            said = fails(*command[:2], corpus, *command[2:], *members)
            assert "sentence a line" in said
            assert "ensembed demo" not in said
    assert "ensembed encoders" in fails("fit", "one.txt", "-e", "onnx:nowhere", "--out", "m")
    assert "ensembed pull glove" in fails("fit", "one.txt", "-e", "words:glove.txt", "--out", "m")
    Path("ten.txt").write_text("".join(f"sentence {i}\n" for i in range(10)))
    assert "--neighbours" in fails("compare", "demo?seed=1", "demo?seed=2", "--corpus", "ten.txt")
    Path("views").write_text("no folder")
    assert "--store FOLDER" in fails("embed", "ten.txt", "-e", "demo", "--store", "views")


@pytest.mark.parametrize(
    "words", [["encode", "demo"], ["embed", "-", "-e", "demo"], ["similarity", "demo", "--pairs", "-"]]
)
def test_who_is_at_a_terminal_is_told_what_a_command_waits_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    typed = io.TextIOWrapper(io.BytesIO(b"a dog\ta cat\n"))
    monkeypatch.setattr("sys.stdin", typed)
    monkeypatch.setattr(typed, "isatty", lambda: True)
    assert main(words) == 0
    assert "Type a line for each text; Ctrl-D ends." in capsys.readouterr().err


# Text that cannot be read


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (TORN, "is not a whole gzip file: Compressed file ended before the end-of-stream marker"),
        (DAMAGED, "is not a whole gzip file: Error -3"),
        (b"b\xe4d\n", "line 1: byte 1 (0xe4) is not UTF-8"),
    ],
)
@pytest.mark.parametrize(
    "command",
    [
        ["encode", "demo", "FILE"],
        ["encode", "demo", "FILE", "--json"],
        ["similarity", "demo", "--pairs", "FILE"],
        ["evaluate", "demo", "--pairs", "FILE"],
        ["embed", "FILE", "-e", "demo"],
        ["fit", "FILE", *MEMBERS, "--method", "gcca", "-o", "OUT"],
    ],
    ids=" ".join,
)
def test_a_file_that_is_damaged_or_not_utf8_is_named(
    fails: Callable[..., str], tmp_path: Path, command: list[str], data: bytes, says: str
) -> None:
    path = tmp_path / "bad.txt.gz"
    path.write_bytes(data)
    named = {"FILE": str(path), "OUT": str(tmp_path / "out")}
    error = fails(*(named.get(argument, argument) for argument in command))
    assert error.startswith(f"error: {path}")
    assert says in error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "command",
    [
        ["encode", "demo"],
        ["encode", "demo", "-"],
        ["similarity", "demo", "--pairs", "-"],
        ["embed", "-", "-e", "demo"],
        ["fit", "-", *MEMBERS, "--method", "gcca", "-o", "out"],
    ],
    ids=" ".join,
)
def test_errors_name_standard_input(
    fails: Callable[..., str], stdin: Callable[[bytes], None], command: list[str]
) -> None:
    stdin(b"one\ttwo\nb\xe4d\ttwo\n")
    assert fails(*command).startswith("error: standard input, line 2: byte 1 (0xe4) is not UTF-8")
    stdin(TORN)
    assert fails(*command).startswith("error: standard input is not a whole gzip file")
    if command[0] in ("embed", "fit"):
        stdin(b"\n\n")
        assert "standard input holds no sentence" in fails(*command)


def test_standard_input_may_be_gzipped(
    capsys: pytest.CaptureFixture[str], stdin: Callable[[bytes], None], corpus: Path
) -> None:
    found = []
    for data in (corpus.read_bytes(), gzip.compress(corpus.read_bytes())):
        for command in (["embed", "-", "-e", "demo", "--json"], ["encode", "demo", "--json"]):
            stdin(data)
            assert main(command) == 0
            found.append(capsys.readouterr().out)
    assert found[:2] == found[2:]


def test_a_disk_too_full_for_standard_input_is_named(tmp_path: Path) -> None:
    shell = f'ulimit -f 8; head -c 100000 /dev/zero | "{sys.executable}" -m ensembed embed - -e demo'
    # `ulimit -f` stops a file from growing as a full disk does, and leaves the disk alone.
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    found = subprocess.run(["bash", "-c", shell], check=False, capture_output=True, text=True, env=environment)
    assert found.returncode == 1
    assert found.stderr.startswith(f"error: standard input cannot be kept in {tmp_path}: ")
    assert "set TMPDIR" in found.stderr
    assert "Traceback" not in found.stderr
    assert list(tmp_path.glob("ensembed-*")) == []


# Results that cannot be written


def test_vectors_that_cannot_be_written_are_named(fails: Callable[..., str], tmp_path: Path, corpus: Path) -> None:
    out = tmp_path / "nodir/x.npy"
    error = fails("encode", "demo", corpus, "--out", out, code=2)
    assert f"there is no folder {str(out.parent)!r} to write x.npy in" in error
    assert "is a directory" in fails("encode", "demo", corpus, "--out", tmp_path, code=2)
    assert "is a file" in fails("fit", corpus, *MEMBERS, "-o", corpus, code=2)


def test_a_full_disk_is_named_once(fails: Callable[..., str], tmp_path: Path, corpus: Path) -> None:
    place = tmp_path / "full"
    place.mkdir()
    with full_disk(place, 1):
        error = fails("encode", "demo", corpus, "--out", place / "x.npy")
    assert error.count("cannot be written") == 1
    assert error.rstrip().endswith(f"No space left on device; free space on the disk of {place}, or name another --out")


def test_errors_of_the_system_are_printed_without_traceback(
    fails: Callable[..., str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stdin: Callable[[bytes], None]
) -> None:
    stdin(b"one\n")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    error = fails("embed", "-", "-e", "demo")
    assert error.startswith("error: [Errno 2] No such file or directory: ")
    assert "gone" in error


# Models that are none


def test_a_folder_does_not_hide_the_encoder_of_its_name(
    fails: Callable[..., str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("demo", "minilm"):
        (tmp_path / name).mkdir()
    assert main(["similarity", "demo", "one", "one", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cosine"] == 1.0
    assert "ensembed pull minilm" in fails("similarity", "minilm", "one", "one", code=3)


def test_a_saved_model_may_share_its_name_with_an_encoder(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, corpus: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["fit", str(corpus), *MEMBERS, "--method", "gcca", "--dim", "3", "-o", "demo", "-q"]) == 0
    assert main(["encode", "demo", str(corpus), "-o", "v.npy"]) == 0
    assert np.load("v.npy").shape == (40, 3)
    capsys.readouterr()


def test_errors_tell_folders_without_a_model_from_unknown_names(
    fails: Callable[..., str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes").mkdir()
    (tmp_path / "pairs.tsv").write_text("5\ta\ta\n1\ta\tb\n")
    for command in (["encode"], ["similarity", "--pairs", "pairs.tsv"], ["evaluate", "--pairs", "pairs.tsv"]):
        assert "error: notes is not a saved model: there is no config.json in it" in fails(*command, "notes")
        error = fails(*command, "my-modle")
        assert "'my-modle' is neither a folder with a saved model nor an encoder: the catalogue has no" in error
    assert "did you mean 'minilm'" in fails("encode", "minilmm")


# Data that is damaged


def test_a_damaged_data_set_is_not_replaced(
    fails: Callable[..., str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own = tmp_path / "data/sts/stsb/dev.tsv"
    own.parent.mkdir(parents=True)
    own.write_text("5\ta\n")
    monkeypatch.setenv("ENSEMBED_DATA", str(tmp_path / "data"))
    monkeypatch.setattr("ensembed.sts.find.is_pulled", lambda _: True)
    assert f"error: {own}, line 1: 3 tab-separated columns" in fails("evaluate", "demo", "--sts", "stsb-dev")


# Pairs, waiting, agreement


def test_pairs_are_compared_as_they_are_read(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("a\tb\n" * 3000 + "alone\n")
    batches = _read_pairs(path)
    assert next(batches)[0] == ("a", "b")


def test_a_line_that_is_no_pair_is_named(
    fails: Callable[..., str], tmp_path: Path, stdin: Callable[[bytes], None]
) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("a\tb\n\n" * 1500 + "alone\n")
    assert f"{path}, line 3001: 1 columns instead of 2" in fails("similarity", "demo", "--pairs", path)
    stdin(b"a\tb\tc\n")
    assert "standard input, line 1: 3 columns instead of 2" in fails("similarity", "demo", "--pairs", "-")


@pytest.mark.parametrize("command", ["embed", "fit"])
def test_wait_limits_the_time_to_wait_for_a_busy_view(
    fails: Callable[..., str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, corpus: Path, command: str
) -> None:
    waits = []

    def acquire(_: FileLock, timeout: float) -> None:
        waits.append(timeout)
        raise PermissionError("not today")

    monkeypatch.setattr("ensembed.views.store.FileLock.acquire", acquire)
    arguments = [command, corpus, *MEMBERS, "--store", ViewStore(tmp_path / "store").root]
    arguments += ["-o", tmp_path / "m"] if command == "fit" else []
    assert "not today" in fails(*arguments, "--wait", "2.5")
    assert waits == [2.5]
    assert "-1" in fails(*arguments, "--wait", "-1", code=2)


def test_fit_says_along_how_many_dimensions_the_members_agree(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, corpus: Path
) -> None:
    arguments = ["fit", str(corpus), *MEMBERS, "--method", "gcca", "-o", str(tmp_path / "m"), "-q", "--force"]
    assert main([*arguments, "--dim", "10", "--json"]) == 0
    positive = sum(rho > 1e-9 for rho in json.loads(capsys.readouterr().out)["spectrum"])
    assert 0 < positive < 10
    assert main([*arguments, "--dim", "10"]) == 0
    assert f"{positive} of 10 dimensions" in capsys.readouterr().out
    assert main([*arguments, "--method", "svd", "--dim", "3"]) == 0
    assert "positive" not in capsys.readouterr().out


def test_warnings_are_printed_without_file_and_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    monkeypatch.setattr(sys, "argv", ["ensembed", "--version"])
    assert main() == 0
    assert warnings.formatwarning("without sts12", RuntimeWarning, "find.py", 7) == "warning: without sts12\n"


# Quotes that are missing


def test_names_with_a_space_between_them_say_how_to_write_them(fails: Callable[..., str], corpus: Path) -> None:
    said = fails("fit", corpus, "-e", "minilm,", "wordllama", "--out", "model", code=2)
    assert said.endswith("no space between names: -e minilm,wordllama\n")


def test_an_unquoted_ampersand_says_to_quote_names(fails: Callable[..., str], corpus: Path) -> None:
    # What a shell passes of `-e demo?dim=5&seed=2 --out model`.
    said = fails("fit", corpus, "-e", "demo?dim=5", code=2)
    assert "Missing option '--out'" in said
    assert "Put names with ? or & in quotes" in said


def test_all_encoders_that_are_not_here_are_named_at_once(
    fails: Callable[..., str], corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENSEMBED_CACHE", str(tmp_path / "empty"))
    corpus.write_text("".join(f"sentence {i}\n" for i in range(60)))
    members = "minilm?max_length=64,demo,use-lite,wordllama"
    for words in (("fit", corpus, "-e", members, "--out", "model"), ("reliability", corpus, "-e", members)):
        assert "ensembed pull minilm use-lite wordllama" in fails(*words, code=3)


def test_sentences_without_quotes_say_how_to_write_them(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["similarity", "demo?dim=8", "A", "dog", "runs."]) == 0
    assert '"A dog runs." "A puppy is running."' in capsys.readouterr().err
    (tmp_path / "corpus.txt").write_text("sentence 3\nsentence 4\n")
    index = str(tmp_path / "index")
    assert main(["index", index, str(tmp_path / "corpus.txt"), "--model", "demo", "-q"]) == 0
    for queries, note in ((["rates", "rise"], True), (["rates rise"], False), (["rates"], False)):
        capsys.readouterr()
        assert main(["search", index, *queries]) == 0
        assert ('needs quotes: "interest rates rise"' in capsys.readouterr().err) is note
    for sentences in (["dog", "puppy"], ["A dog runs.", "puppy", "cat"]):
        assert main(["similarity", "demo?dim=8", *sentences]) == 0
        assert capsys.readouterr().err == ""


def test_names_of_files_that_are_no_text_are_printed_as_they_are(tmp_path: Path) -> None:
    name = os.fsencode(tmp_path) + b"/caf\xe9.npy"
    done = subprocess.run(
        [sys.executable, "-m", "ensembed", "encode", "demo", "-", "--out", name],
        input=b"a dog\n",
        capture_output=True,
        check=False,
        env=os.environ | {"PYTHONIOENCODING": "utf-8:strict"},  # as on most desktops
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(name)
