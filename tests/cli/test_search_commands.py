"""`ensembed index` and `ensembed search`, as a person and as a program use them."""

from __future__ import annotations

import gzip
import io
import json
import os
import pty
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ensembed.cli import main
from ensembed.corpora.record_files import RecordFile
from ensembed.encoders.base import UntrustedName
from ensembed.encoders.demo_encoder import DemoEncoder
from ensembed.errors import CorpusError, EncoderError, InputError, SearchIndexError
from ensembed.search import Index
from ensembed.search.index_input import add_file

CSV = 'id,text,page\n1,a dog barks,3\n2,"a cat,\nasleep",4\n3,,5\n4,stocks fell,6\n'


def call(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> Any:  # noqa: ANN401 - whatever JSON holds
    capsys.readouterr()
    found = main(list(map(str, arguments)))
    captured = capsys.readouterr()
    assert found == code, captured.err
    assert "Traceback" not in captured.err
    return captured.err if code else [json.loads(line) for line in captured.out.splitlines()]


@pytest.fixture
def index(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Path:
    (tmp_path / "a.csv").write_text(CSV)
    folder = tmp_path / "index"
    command = ["index", folder, tmp_path / "a.csv", "--model", "demo", "--id-column", "id", "--json"]
    [facts] = call(capsys, *command)
    assert (facts["rows"], facts["now_added"], facts["now_blank"]) == (3, 3, 1)
    return folder


def test_a_csv_file_is_indexed_and_found(capsys: pytest.CaptureFixture[str], index: Path) -> None:
    [found] = call(capsys, "search", index, "a cat asleep", "-k", "1", "--json")
    assert found["query"] == "a cat asleep"
    [hit] = found["hits"]
    assert (hit["id"], hit["text"], hit["metadata"]) == ("2", "a cat,\nasleep", {"page": "4"})
    capsys.readouterr()
    assert main(["search", str(index), "a dog", "stocks"]) == 0
    table = capsys.readouterr().out
    assert "a cat, asleep" in table
    assert table.index("a dog\n") < table.index("stocks\n")


def test_rows_are_added_replaced_and_deleted(capsys: pytest.CaptureFixture[str], index: Path, tmp_path: Path) -> None:
    more = tmp_path / "more.jsonl"
    more.write_text('{"n": 4, "body": "stocks rose", "tags": ["x"]}\n\n{"n": "9", "body": "a fox"}\n')
    columns = ["--id-column", "n", "--text-column", "body"]
    assert "the id '4' is in the index already" in call(capsys, "index", index, more, *columns, code=1)
    [facts] = call(capsys, "index", index, more, *columns, "--replace", "--json")
    assert (facts["rows"], facts["now_added"], facts["now_blank"]) == (4, 2, 1)
    [found] = call(capsys, "search", index, "stocks rose", "-k", "1", "--json")
    assert found["hits"][0]["metadata"] == {"tags": ["x"]}
    assert "no row has the id '77'" in call(capsys, "index", index, "--delete", "77", code=1)
    [facts] = call(capsys, "index", index, "--delete", "9", "--remove", "1", "--compact", "--json")
    assert (facts["rows"], facts["segments"], facts["now_deleted"]) == (2, 1, 2)
    (tmp_path / "ids").write_text("2\n\n4\n")
    [facts] = call(capsys, "index", index, "--delete-from", tmp_path / "ids", "--verify", "--json")
    assert facts["rows"] == 0
    assert "holds no rows" in call(capsys, "search", index, "a", code=1)


def test_a_file_is_added_once_unless_again(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "lines.txt.gz"
    path.write_bytes(gzip.compress(b"one\n\ntwo\n"))
    command = ["index", tmp_path / "index", path, "--model", "demo"]
    [facts] = call(capsys, *command, "--json")
    assert facts["rows"] == 2
    assert "was added to" in call(capsys, *command, code=1)
    [facts] = call(capsys, *command, "--again", "--json")
    assert facts["rows"] == 4


def test_an_interrupted_import_continues_after_the_last_batch(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_text("\n".join(f"line {i}" for i in range(25)))

    class Interrupted(DemoEncoder):
        calls = 0

        def embed(self, sentences: list[str]) -> Any:  # noqa: ANN401 - an array
            Interrupted.calls += len(sentences) > 2
            if Interrupted.calls == 3:
                raise KeyboardInterrupt
            return super().embed(sentences)

    index = Index.create(tmp_path / "index", Interrupted(8))
    file = RecordFile(path, str(path))
    with pytest.raises(KeyboardInterrupt):
        add_file(index, file, batch=5)
    assert len(Index.open(index.folder)) == 10
    done = add_file(Index.open(index.folder, DemoEncoder(8)), file, batch=5)
    assert (done.added, done.before) == (15, 10)
    found = Index.open(index.folder, verify=True)
    assert sorted(hit.text for hit in found.search(["line"], 99)[0]) == sorted(path.read_text().splitlines())


def test_an_interrupted_index_says_how_to_continue(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    (tmp_path / "lines.txt").write_text("one\n")
    command = ["index", tmp_path / "index", tmp_path / "lines.txt", "-m", "demo", "--json"]
    with monkeypatch.context() as patched:
        patched.setattr("ensembed.cli.index.add_file", interrupt)
        assert "run the same command to continue" in call(capsys, *command, code=130)
    assert call(capsys, *command)[0]["rows"] == 1


def test_deleting_and_adding_can_be_repeated_after_an_interruption(
    capsys: pytest.CaptureFixture[str], index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = tmp_path / "more.csv"
    more.write_text("id,text\n1,a dog is back\n8,a fox\n9,a hen\n")
    command = ["index", index, more, "--id-column", "id", "--batch", "1", "--delete", "1", "--delete", "2", "--json"]
    add = Index.add

    def interrupted_after(batches: int) -> None:
        def interrupt(*arguments: Any, **settings: Any) -> list[str]:  # noqa: ANN401 - those of `Index.add`
            nonlocal batches
            batches -= 1
            if batches < 0:
                raise KeyboardInterrupt
            return add(*arguments, **settings)

        with monkeypatch.context() as patched:
            patched.setattr(Index, "add", interrupt)
            call(capsys, *command, code=130)

    interrupted_after(0)
    assert "no row has the id '1'" in call(capsys, "index", index, "--delete", "1", code=1)
    interrupted_after(1)
    assert Index.open(index).get(["1"])[0]["text"] == "a dog is back"  # the row of the file stays in what follows
    [facts] = call(capsys, *command)
    assert (facts["rows"], facts["now_deleted"], facts["now_added"]) == (4, 0, 2)
    assert [row["text"] for row in Index.open(index).get(["1", "9"])] == ["a dog is back", "a hen"]
    # The file is complete: the next run is another one, and deletes or fails as a whole.
    assert "was added to" in call(capsys, *command[:-5], "--delete", "8", code=1)
    assert len(Index.open(index)) == 4
    command = [*command[:-5], "--delete", "1", "--delete", "8", "--delete", "9", "--again", "--json"]
    interrupted_after(0)
    [facts] = call(capsys, *command)
    assert (facts["rows"], facts["now_deleted"], facts["now_added"]) == (4, 0, 3)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "title,id\nx,1\n", "no column 'text' (column=…, --text-column); there are 'title', 'id'"),
        ("a.csv", "text,text\nx,1\n", "names the column 'text' twice"),
        ("a.csv", "text,b\nx\n", "line 2: 1 cells instead of 2"),
        ("a.csv", 'text\n"x\n', "is no CSV"),
        ("a.jsonl", "{}\n", "no column 'text'"),
        ("a.jsonl", "[1]\n", "is no JSON object"),
        ("a.jsonl", '{"text": "x", "y": NaN}\n', "line 1 is no JSON: NaN"),
        ("a.jsonl", '{"text": 7}\n', "'text' is no string but 7"),
        ("a.txt", "caf\udce9\n", "is not UTF-8"),
    ],
)
def test_errors_in_a_file_name_the_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, text: str, message: str
) -> None:
    (tmp_path / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    assert message in call(capsys, "index", tmp_path / "index", tmp_path / name, "--model", "demo", code=1)


def test_index_and_search_refuse_bad_command_lines(
    capsys: pytest.CaptureFixture[str], index: Path, tmp_path: Path
) -> None:
    assert "to make one, write ensembed index" in call(capsys, "index", tmp_path / "new", code=2)
    assert "there is no file" in call(capsys, "index", index, tmp_path / "absent", code=1)
    assert "is not a search index" in call(capsys, "search", tmp_path, "x", code=1)
    assert "is blank" in call(capsys, "search", index, " ", code=1)
    assert "was made with 'demo'" in call(capsys, "search", index, "x", "--model", "demo?dim=8", code=1)


def test_queries_from_a_pipe_are_answered_line_by_line(
    capsys: pytest.CaptureFixture[str], index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Piped:
        buffer = io.BytesIO(b"a dog\n\nstocks\n")

        def isatty(self) -> bool:
            return False

    monkeypatch.setattr("sys.stdin", Piped())
    first, blank, last = call(capsys, "search", index, "-k", "1", "--json")
    assert [first["hits"][0]["id"], last["hits"][0]["id"]] == ["1", "4"]
    assert "is blank" in blank["error"]


def test_texts_can_come_from_a_pipe(tmp_path: Path) -> None:
    shell = f'printf "one\\ntwo\\n" | "{sys.executable}" -m ensembed index "{tmp_path / "i"}" - -m demo --json'
    found = subprocess.run(["bash", "-c", shell], check=True, capture_output=True, text=True, timeout=120)
    assert json.loads(found.stdout)["rows"] == 2


def test_search_prompts_on_a_terminal_until_ctrl_d(index: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "ensembed", "search", str(index), "-k", "1"]
    child = subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    os.write(ours, b"a dog\n\n\x04")
    out, err = child.communicate(timeout=120)
    os.close(ours)
    os.close(theirs)
    assert child.returncode == 0, err
    assert b"3 rows, demo. Type a query; Ctrl-D ends." in err
    assert out.count(b"search> ") == 3
    assert b"a dog barks" in out


def test_other_settings_for_an_existing_index_are_refused(
    capsys: pytest.CaptureFixture[str], index: Path, tmp_path: Path
) -> None:
    more = tmp_path / "more.txt"
    more.write_text("a fox\n")
    for option, value, has in (
        ("--kind", "exact", "auto"),
        ("--dtype", "int8", "float32"),
        ("--rescore", "3", "1"),
        ("--graph-rows", "5", "250000"),
    ):
        error = call(capsys, "index", index, more, option, value, code=1)
        name = option.removeprefix("--").replace("-", "_")
        assert f"was made with {name} {has}, which stays, not {value}: leave out {name} ({option})" in error
        assert "in a new folder" in error
        assert len(Index.open(index)) == 3
    same = ["--kind", "auto", "--dtype", "float32", "--rescore", "1", "--graph-rows", "250000"]
    [facts] = call(capsys, "index", index, more, *same, "--json")
    assert facts["rows"] == 4


def test_an_index_that_never_had_a_row_is_made_again_with_other_settings(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder, bad, good = tmp_path / "index", tmp_path / "bad.csv", tmp_path / "good.csv"
    bad.write_text("title\nx\n")
    good.write_text(CSV)
    new = ["index", folder, good, "--json"]
    assert "no column 'text'" in call(capsys, "index", folder, bad, "-m", "demo", "--dtype", "int8", code=1)
    [facts] = call(capsys, "index", folder, "--json")
    assert (facts["rows"], facts["dtype"], facts["rescore"]) == (0, "int8", 4)
    # What is not said again stays, without a model too.
    assert "no column 'text'" in call(capsys, "index", folder, bad, "--graph-rows", "9", code=1)
    manifest = Index.open(folder).manifest
    assert manifest.source == UntrustedName("demo")
    assert (manifest.settings.dtype, manifest.settings.graph_rows) == ("int8", 9)
    [facts] = call(capsys, *new, "-m", "demo?dim=8", "--dtype", "binary")
    assert (facts["rows"], facts["dim"], facts["dtype"], facts["rescore"]) == (3, 8, "binary", 16)
    Index.open(folder, verify=True)
    assert "was made with 'demo?dim=8'" in call(capsys, *new, "-m", "demo", "--again", code=1)
    [facts] = call(capsys, "index", folder, "--delete", "0", "--delete", "1", "--delete", "2", "--json")
    assert facts["rows"] == 0
    assert "was made with 'demo?dim=8'" in call(capsys, *new, "-m", "demo", "--again", code=1)


def test_a_first_run_whose_encoder_fails_does_not_fix_the_model(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    class Failing(DemoEncoder):
        def embed(self, sentences: list[str]) -> Any:  # noqa: ANN401 - an array
            if len(sentences) > 2:
                raise RuntimeError("out of order")
            return super().embed(sentences)

    path = tmp_path / "lines.txt"
    path.write_text("one\ntwo\nthree\n")
    index = Index.create(tmp_path / "index", Failing(16))
    with pytest.raises(EncoderError, match="out of order"):
        add_file(index, RecordFile(path, str(path)))
    [facts] = call(capsys, "index", index.folder, path, "-m", "demo?dim=8", "--json")
    assert (facts["rows"], facts["dim"]) == (3, 8)
    with pytest.raises(SearchIndexError, match="is another index now"):
        index.add(["four"])


def test_a_model_that_is_gone_is_no_error_of_records(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    vectors, path, folder = tmp_path / "vectors.txt", tmp_path / "lines.txt", tmp_path / "index"
    vectors.write_text("one 1 0\ntwo 0 1\n")
    path.write_text("one\ntwo\n")
    call(capsys, "index", folder, path, "--model", f"words:{vectors}", "--json")
    vectors.unlink()
    path.write_text("two\n")
    error = call(capsys, "index", folder, path, "--json", code=1)
    assert error.startswith(f"error: the model of {folder} cannot be opened: there is no file of word vectors")


def test_a_long_cell_of_a_csv_file_is_indexed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    long = "a dog barks " * 900_000
    path = tmp_path / "long.csv"
    path.write_text(f'id,text\n1,"{long}"\n2,short\n')
    assert [len(record.text) for record in RecordFile(path, str(path))] == [len(long), 5]
    [facts] = call(capsys, "index", tmp_path / "index", path, "--model", "demo?dim=8", "--id-column", "id", "--json")
    assert facts["rows"] == 2
    assert Index.open(facts["folder"]).get(["1"])[0]["text"] == long
    # A quote that is never closed is still an error, and not a cell of a whole file.
    path.write_text('text\n"' + ("x" * 1023 + "\n") * ((1 << 16) + 1))
    with pytest.raises(CorpusError, match="larger than field limit"):
        list(RecordFile(path, str(path)))


def test_stored_escape_sequences_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    evil = "a dog \x1b]0;owned\x07\x1b[2J\x9b31m \u202e barks"
    index = Index.create(tmp_path / "index", "demo")
    index.add([evil], ["id\x1b[31m\nid"], [{"\x9b": "\x9b"}])
    assert main(["search", str(tmp_path / "index"), "a dog"]) == 0
    table = capsys.readouterr().out
    assert "id\\u001b[31m\\u000aid" in table
    assert not set(table) & set("\x1b\x07\x9b\u202e")
    assert main(["search", str(tmp_path / "index"), "a dog", "--json"]) == 0
    line = capsys.readouterr().out
    assert not set(line) & set("\x1b\x07\x9b\u202e")
    assert json.loads(line)["hits"][0]["text"] == evil
    assert main(["search", str(tmp_path / "\x1b[31m"), "a dog"]) == 1
    assert "error: " in (message := capsys.readouterr().err)
    assert "\x1b" not in message


def test_verify_says_that_an_old_index_has_no_checksums_of_blocks(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    golden = Path(__file__).parents[1] / "golden" / "version-0.1" / "indexes" / "exact"
    shutil.copytree(golden, tmp_path / "index")
    assert main(["index", str(tmp_path / "index"), "--verify"]) == 0
    assert "have no checksums of blocks" in capsys.readouterr().err
    assert main(["index", str(tmp_path / "index"), "--compact"]) == 0
    capsys.readouterr()
    assert main(["index", str(tmp_path / "index"), "--verify"]) == 0
    assert "have no checksums of blocks" not in capsys.readouterr().err


def test_the_error_after_a_change_of_model_says_the_command_that_helps(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("texts.txt").write_text("a dog barks\na cat sleeps\nstocks fell\n")
    fit = ["fit", "texts.txt", "-e", "demo?dim=8", "-e", "demo?dim=6&seed=2", "--out", "model", "-q"]
    assert main([*fit, "--method", "conc"]) == 0
    assert main(["index", "index", "texts.txt", "--model", "model", "-q"]) == 0
    assert main([*fit, "--method", "svd", "--dim", "2", "--force"]) == 0
    commands = set()
    for command in (
        ["search", "index", "dog"],
        ["search", "index", "dog", "-m", "model"],
        ["index", "index", "-m", "model"],
    ):
        capsys.readouterr()
        assert main(command) == 1
        commands.add(capsys.readouterr().err.rpartition("again with this one: ensembed ")[2].strip())
    assert commands == {
        "index index --model model --change-model",
        f"index index --model {tmp_path / 'model'} --change-model",
    }
    assert main([*shlex.split(commands.pop()), "-q"]) == 0
    capsys.readouterr()
    assert main(["search", "index", "a dog barks", "-k", "1"]) == 0
    assert "a dog barks" in capsys.readouterr().out
    assert main(["index", "index", "--change-model"]) == 2


def test_an_error_in_a_file_says_which_records_it_is_about(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("id,text\n" + "".join(f"{i % 20},text {i}\n" for i in range(30)))
    file = RecordFile(path, "rows.csv", id_column="id")
    index = Index.create(tmp_path / "index", "demo?dim=8")
    message = "rows.csv, records 15 to 21: the id '0' is in the index already.*; the 14 texts before them stay"
    with pytest.raises(InputError, match=message):
        add_file(index, file, batch=7)
    assert len(index) == 14
    with pytest.raises(InputError, match="batch must be a whole number of at least 1, not 0"):
        add_file(index, file, batch=0)
