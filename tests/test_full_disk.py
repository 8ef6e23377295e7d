"""A disk that becomes full at any write of a command: an error that says where, and the same command can continue."""

from __future__ import annotations

import errno
import importlib
import itertools
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from full_disk import full_disk
from power_cut_points import pull_entry, pulled
from served_data import by_member, described, serving, year_files, zipped

from ensembed import Ensemble, load
from ensembed.cli import SUMMARIES, main
from ensembed.encoders.demo_encoder import DemoEncoder
from ensembed.errors import CorruptViewError, DatasetError, DiskFullError, InputError, ModelError, PullError, StoreError
from ensembed.methods import SVD
from ensembed.paper.notebook import Notebook
from ensembed.search import Index
from ensembed.sts.find import fetch_data
from ensembed.support.atomic_files import disk_error, make_folder, write_atomically
from ensembed.views import View

# Small word vectors, graphs and findings are made there.
sys.path.extend(str(Path(__file__).parent / folder) for folder in ("encoders", "paper"))

from make_static import small_tokenizer
from make_words import glove_text, small_vectors

MEMBERS = ["-e", "demo?dim=5&seed=1", "-e", "demo?dim=4&seed=2"]
WORDS = ["a", "man", "dogs", "run", "snow", "the"]
TEXTS = [f"sentence {i} of {i % 7} and {i % 5}" for i in range(60)]
State = dict[str, Any]  # what a command has written, by name


def views(work: Path) -> State:
    """Return the rows of every complete view that is not damaged, by the length of its vectors."""
    whole: State = {}
    for manifest in work.rglob("manifest.json"):
        with suppress(CorruptViewError):
            view = View(manifest.parent)
            whole[str(view.shape[1])] = np.asarray(view).tobytes()
    return whole


def model(work: Path) -> State:
    # A model whose training was interrupted is the same to the bit.
    return {"model": load(work / "model").encode(TEXTS).tobytes()} if (work / "model" / "config.json").exists() else {}


def rows(work: Path) -> State:
    """Return every row of an index as a search returns it."""
    if not (work / "index" / "index.json").exists():
        return {}
    index = Index.open(work / "index")
    index.verify()
    [hits] = index.search(["sentence"], k=1000) if len(index) else [[]]
    return {hit.id: (hit.text, hit.metadata, f"{hit.score:.6f}") for hit in hits}


def migrated(work: Path) -> State:
    """Return every row of the migrated index; nothing while the migration is under way."""
    if not (work / "new" / "index.json").exists():
        return {}
    index = Index.open(work / "new", verify=True)
    [hits] = index.search(["sentence"], k=1000)
    return {hit.id: (hit.text, f"{hit.score:.6f}") for hit in hits}


def student(work: Path) -> State:
    """Return a student's vectors; it has the same bits whatever interrupted its training."""
    if not (work / "student" / "config.json").exists():
        return {}
    return {"student": load(f"model2vec:{work / 'student'}").encode(TEXTS).tobytes()}


def job(work: Path) -> State:
    """Return what determines a training."""
    from ensembed.distil.distil_job import Job

    return {"job": Job.open(work / "job").identity} if (work / "job" / "job.json").exists() else {}


def train_job(work: Path) -> None:
    from ensembed.distil.student_training import main as train

    assert train([str(work / "job")]) == 0


def written(*names: str) -> Callable[[Path], State]:
    """Return the content of files that a command writes beside views."""
    return lambda work: {name: (work / name).read_bytes() for name in names if (work / name).exists()}


def nothing(work: Path) -> State:
    """Return what a command writes that keeps only temporary files, which are gone."""
    return {str(path): path.name for path in (work / "temporary").iterdir()}


def flip_a_bit(work: Path) -> None:
    shard = next(work.rglob("shard-*.npy"))
    data = shard.read_bytes()
    shard.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


@dataclass(frozen=True)
class Command:
    """A command line that writes.

    Attributes:
        line: its arguments.
        state: returns what it has written.
        earlier: what is done before: command lines, and functions of the folder.
        commits: it writes several things, each of which stays.
        library: what it needs.
    """

    line: list[str]
    state: Callable[[Path], State]
    earlier: Sequence[list[str] | Callable[[Path], None]] = ()
    commits: bool = False
    library: str = "ensembed"


INDEX = ["index", "index", "corpus.txt", "--model", "demo?dim=4", "--batch", "30"]
FIT = ["fit", "corpus.txt", *MEMBERS, "--store", "store", "--out", "model", "--force", "--method"]
ENCODE = ["encode", "corpus.txt", "--force", "-e"]
EMBED = ["embed", "corpus.txt", "--store", "store", "-e"]
TUNE = ["auto", "--tune", "pairs.tsv"]
STORE = ["--store", "store"]
FORCED = ["--force", *STORE]
SAMPLE = ["--rows", "50", *STORE]
OLD = ["index", "old", "many.txt", "--model", "demo?dim=6"]
MOVE = ["--sample", "200", "--yes", *STORE]  # a few rows are translated
DISTIL = ["distil", "demo?dim=6", "many.txt", "--start", "none", "--tokenizer", "tokenizer.json", "--dim", "3"]
DISTIL += ["--epochs", "2", "--batch-size", "64", *STORE]
COMMANDS = {
    "embed": Command([*EMBED, "demo?dim=5"], views, [[*EMBED, "demo?dim=3"]]),
    "repair": Command(
        [*EMBED, "demo?dim=5", "--verify"], views, [[*EMBED, "demo?dim=5"], flip_a_bit, [*EMBED, "demo?dim=3"]]
    ),
    "convert word vectors": Command(
        [*EMBED, "words:glove.txt?pooling=sif&corpus=corpus.txt"], views, [[*EMBED, "demo?dim=3"]]
    ),
    "fit": Command([*FIT, "svd", "--dim", "3"], model),
    "fit over a model": Command([*FIT, "gcca", "--dim", "3"], model, [[*FIT, "conc"]]),
    # Views are there already, here and below, so that few writes remain.
    "tune": Command([*FIT, *TUNE], model, [[*FIT, *TUNE], [*FIT, "conc"]]),
    "train": Command(
        [*FIT, "ae", "--dim", "2", "--epochs", "2", "--hidden-layers", "1"], model, [[*FIT, "svd"]], library="torch"
    ),
    "index": Command(INDEX, rows, commits=True),
    "add": Command(["index", "index", "more.txt"], rows, [INDEX]),
    "delete": Command(
        ["index", "index", *itertools.chain(*(["--delete", str(i)] for i in (0, 1, 2, 20)))], rows, [INDEX]
    ),
    "change the model": Command(["index", "index", "--model", "demo?dim=3", "--change-model"], rows, [INDEX]),
    "compact": Command(["index", "index", "--compact"], rows, [INDEX, ["index", "index", "--delete", "3"]]),
    "encode over a file": Command(
        [*ENCODE, "demo?dim=4", "--out", "v.npy"], written("v.npy"), [[*ENCODE, "demo?dim=3", "--out", "v.npy"]]
    ),
    **{
        f"encode as .{form}": Command(
            [*ENCODE, "demo?dim=4", "--out", f"v.{form}"],
            written(f"v.{form}"),
            library="pyarrow" if form == "parquet" else "ensembed",
        )
        for form in ("npy", "csv", "tsv", "jsonl", "parquet", "safetensors")
    },
    "dedupe": Command(
        [
            "dedupe",
            "demo?dim=4",
            "corpus.txt",
            "--threshold",
            "0.9",
            "--out",
            "g.csv",
            "--kept",
            "k.txt",
            "--force",
            *STORE,
        ],
        written("g.csv", "k.txt"),
        [
            [
                "dedupe",
                "demo?dim=3",
                "more.txt",
                "--threshold",
                "0.8",
                "--out",
                "g.csv",
                "--kept",
                "k.txt",
                "--force",
                *STORE,
            ]
        ],
        commits=True,
    ),
    "cluster": Command(
        ["cluster", "demo?dim=4", "corpus.txt", "-k", "2", "--out", "c.jsonl", *FORCED],
        written("c.jsonl"),
        [["cluster", "demo?dim=4", "corpus.txt", "-k", "2", *STORE]],
        library="sklearn",
    ),
    "cluster to a page": Command(
        ["cluster", "demo?dim=4", "corpus.txt", "-k", "2", "--html", "c.html", *FORCED],
        written("c.html"),
        [["cluster", "demo?dim=4", "corpus.txt", "-k", "2", *STORE]],
        library="sklearn",
    ),
    "compare": Command(
        [
            "compare",
            "demo?dim=5",
            "demo?dim=4",
            "--corpus",
            "corpus.txt",
            "--svg",
            "a.svg",
            "--markdown",
            "a.md",
            "--force",
            *SAMPLE,
        ],
        written("a.svg"),
        [["compare", "demo?dim=5", "demo?dim=4", "--corpus", "corpus.txt", *SAMPLE]],
        commits=True,
    ),
    "translate": Command(
        ["translate", "demo?dim=6", "demo?dim=4&seed=1", "many.txt", "--kind", "ridge", "--out", "model", *FORCED],
        model,
        [["translate", "demo?dim=6", "demo?dim=3", "many.txt", "--kind", "ridge", "--out", "model", *STORE]],
    ),
    "migrate": Command(
        ["migrate", "old", "--to", "demo?dim=4&seed=1", "--kind", "ridge", "--out", "new", *MOVE],
        migrated,
        [OLD],
    ),
    "embed translated rows": Command(
        ["index", "index", "--embed-translated", "100"],
        rows,
        [OLD, ["migrate", "old", "--to", "demo?dim=4", "--kind", "ridge", "--out", "index", *MOVE]],
        commits=True,
    ),
    "choose": Command(
        ["choose", "corpus.txt", *MEMBERS, *SAMPLE],
        views,
        [["embed", "more.txt", "-e", "demo?dim=3", *STORE]],
        commits=True,
    ),
    "search with another model": Command(
        ["search", "old", "a man", "--query-model", "demo?dim=4", "--sample", "200", *STORE], views, [OLD]
    ),
    "benchmark": Command(["bench", "corpus.txt", *MEMBERS, "--sentences", "20"], nothing),
    "evaluate pairs": Command(
        ["evaluate", "demo?dim=5", "--pairs", "pairs.tsv", *STORE],
        views,
        [["embed", "more.txt", "-e", "demo?dim=3", *STORE]],
    ),
    "evaluate a task": Command(
        ["evaluate", "demo?dim=5", "--task", "pairs.tsv", *STORE],
        views,
        [["embed", "more.txt", "-e", "demo?dim=3", *STORE]],
    ),
    "distil": Command([*DISTIL, "--out", "student", "--force"], student, library="torch"),
    "distil over a student": Command(
        [*DISTIL, "--precision", "int8", "--out", "student", "--force"],
        student,
        [[*DISTIL, "--seed", "1", "--out", "student"]],
        library="torch",
    ),
    "prepare a job": Command([*DISTIL, "--prepare", "job"], job, library="torch"),
    "save a trained job": Command(
        [*DISTIL, "--trained", "job", "--out", "student"],
        student,
        [[*DISTIL, "--prepare", "job"], train_job],
        library="torch",
    ),
    "reliability": Command(
        ["reliability", "corpus.txt", *MEMBERS, "-e", "demo?dim=6&seed=3", "--plot", "trust.svg", "--force", *SAMPLE],
        written("trust.svg"),
        [["reliability", "corpus.txt", *MEMBERS, "-e", "demo?dim=6&seed=3", *SAMPLE]],
        library="matplotlib",
    ),
}


OTHERS = {
    "data": "as fetched data below",
    "demo": "what pull, embed and reproduce write",
    "encoders": "nothing",
    "pull": "below",
    "push": "a copy of the model, as every save, which is removed",
    "reproduce": "views, as embed, and what reports and experiments below write",
    "serve": "nothing",
    "similarity": "nothing",
}
"""What is written by the commands that are not run here."""


def test_every_command_that_writes_is_tested() -> None:
    assert {command.line[0] for command in COMMANDS.values()} == SUMMARIES.keys() - OTHERS.keys()


@pytest.mark.filterwarnings("default:.*the change is saved:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:these .* look unlike:RuntimeWarning")
@pytest.mark.parametrize("name", COMMANDS)
def test_a_disk_that_becomes_full_at_any_write_is_named_and_the_command_can_continue(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = COMMANDS[name]
    pytest.importorskip(command.library)
    if name == "train":
        from ensembed.methods.autoencoder import training_loop

        monkeypatch.setattr(training_loop, "_KEEP_EVERY", 0.0)

    def run(work: Path, line: list[str] = command.line) -> str | None:
        """Return what the command says that went wrong, if anything."""
        monkeypatch.chdir(work)
        monkeypatch.setenv("ENSEMBED_CACHE", str(work / "cache"))
        monkeypatch.setattr(tempfile, "tempdir", str(work / "temporary"))
        capsys.readouterr()
        code = main(line if line[0] == "search" else [*line, "--quiet"])
        told = capsys.readouterr().err
        assert code in (0, 1), told
        return told if code else None

    def prepare(work: Path) -> None:
        (work / "temporary").mkdir()
        (work / "corpus.txt").write_text("\n".join(TEXTS))
        (work / "more.txt").write_text("one more\nand another\n")
        (work / "many.txt").write_text("\n".join(f"{a} {b} {c}" for a, b, c in itertools.product(*[WORDS] * 3)))
        small_tokenizer().save(str(work / "tokenizer.json"))
        (work / "glove.txt").write_bytes(glove_text(small_vectors(30)))
        pairs = [f"{i % 5}\t{a}\t{b}" for i, (a, b) in enumerate(itertools.pairwise(TEXTS))]
        (work / "pairs.tsv").write_text("\n".join(pairs))
        for step in command.earlier:
            assert (run(work, step) if isinstance(step, list) else step(work)) is None

    check_every_write(tmp_path, prepare, run, command.state, commits=command.commits)


def check_every_write(
    root: Path,
    prepare: Callable[[Path], object],
    run: Callable[[Path], str | None],
    state: Callable[[Path], State],
    *,
    commits: bool = False,
) -> None:
    """Let the disk become full at each write of a run in turn.

    Then the error names a file and what to free, what was there before is there, and the next run goes on.
    """
    base, done = root / "base", root / "done"
    base.mkdir()
    prepare(base)
    before = state(base)
    shutil.copytree(base, done)
    assert run(done) is None
    after = state(done)
    assert after != before or state in (rows, nothing)
    for n in itertools.count(1):
        work = root / "work"
        shutil.copytree(base, work)
        with full_disk(root, n) as disk:
            told = run(work)
        now = state(work)
        if told is None:  # also if only a cache could not be written, or a compaction waits
            assert now == after
        else:
            assert "cannot" in told or "could not" in told
            assert str(work) in told or any(name in told for name in after), told
            assert "free space" in told or "make room" in told, told
            for key in before.keys() | after.keys() if commits else ():
                assert now.get(key) in (before.get(key), after.get(key)), (n, key, told)
            assert commits or now in (before, after), (n, told)
            assert run(work) is None, n
            assert state(work) == after
        shutil.rmtree(work)
        if not disk.failed:
            assert n > 3
            return


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_full_disk_of_temporary_files_is_told_from_that_of_the_output(
    n: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    (tmp_path / "many.txt").write_text("\n".join(f"{a} {b} {c}" for a, b, c in itertools.product(*[WORDS] * 3)))
    small_tokenizer().save("tokenizer.json")
    with full_disk(tmp_path / "temporary", n):
        assert main([*DISTIL, "--variants", "1", "--out", "student", "--quiet"]) == 1
    assert f"free space on the disk of {tmp_path}/temporary" in capsys.readouterr().err


def test_a_disk_that_becomes_full_while_data_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    files, folder = year_files("sts13"), "senteval/downstream/STS/STS13-en-test"
    with serving() as site:
        site.files["/13.zip"] = zipped(by_member(files))
        data_set = described("sts13", folder, files, f"{site.url}/13.zip")

        def run(work: Path) -> str | None:
            monkeypatch.setenv("ENSEMBED_CACHE", str(work / "cache"))
            try:
                fetch_data(data_set, work / "data")
            except DatasetError as error:
                return str(error)
            return None

        check_every_write(tmp_path, lambda _: None, run, written(*(f"data/{folder}/{name}" for name in files)))


def test_a_disk_that_becomes_full_during_a_pull(tmp_path: Path) -> None:
    def run(work: Path) -> str | None:
        try:
            pull_entry(work)
        except PullError as error:
            return str(error)
        return None

    check_every_write(tmp_path, lambda _: None, run, pulled)


def test_a_disk_that_becomes_full_during_an_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnx")
    from make_onnx import write_onnx

    from ensembed.integrations.onnx import OnnxModel, export_model

    monkeypatch.setenv("ENSEMBED_CACHE", str(tmp_path / "cache"))
    member = f"onnx:{write_onnx(tmp_path / 'encoder')}"
    old, new = (Ensemble([member]).fit(TEXTS, method) for method in (SVD(dim=2), SVD(dim=3)))

    def run(work: Path) -> str | None:
        try:
            export_model(new, work / "graphs")
        except ModelError as error:
            return str(error)
        return None

    check_every_write(
        tmp_path,
        lambda base: export_model(old, base / "graphs"),
        run,
        lambda work: {"vectors": OnnxModel(work / "graphs", threads=1).encode(TEXTS[:3]).tobytes()},
    )


def test_a_disk_that_becomes_full_while_a_student_becomes_a_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnx")
    from make_st import write_st

    from ensembed.integrations.onnx_bert import export_bert

    def prepare(base: Path) -> None:
        (base / "temporary").mkdir()
        write_st(base / "student", normalize=False)

    def run(work: Path) -> str | None:
        monkeypatch.setattr(tempfile, "tempdir", str(work / "temporary"))
        try:
            export_bert(work / "student", work / "graphs")
        except OSError as error:
            return str(error)
        return None

    check_every_write(tmp_path, prepare, run, written("graphs/model.onnx", "graphs/model_quantized.onnx"))


def test_a_disk_that_becomes_full_during_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for library in ("pydantic", "jinja2", "matplotlib"):
        pytest.importorskip(library)
    from sample_findings import sample_findings

    from ensembed.paper.report import page
    from ensembed.paper.tables import table_formats

    findings, earlier = sample_findings(), sample_findings(texts=False)
    tables = dict(list(table_formats.table_files(findings).items())[:2])
    figure = page.all_figures(findings)[0]
    for module in (page, table_formats):  # a few are as good as all, which take long
        monkeypatch.setattr(module, "table_files", lambda _: tables)
    monkeypatch.setattr(page, "all_figures", lambda _: (figure,))
    monkeypatch.setattr(page, "report_html", lambda given, _: "new" if given is findings else "old")

    def run(work: Path) -> str | None:
        try:
            page.write_report(findings, work / "out")
        except InputError as error:
            return str(error)
        return None

    names = ("out/report.html", "out/findings.json")
    prepare = lambda base: page.write_report(earlier, base / "out")  # noqa: E731 - one line of it
    check_every_write(tmp_path, prepare, run, written(*names), commits=True)


def test_a_disk_that_becomes_full_during_an_experiment(tmp_path: Path) -> None:
    pytest.importorskip("pydantic")

    def run(work: Path) -> str | None:
        try:
            Notebook(work / "new" / "notes").record(Finding, "facts", lambda: Finding(3))
        except OSError as error:
            return str(error)
        return None

    def state(work: Path) -> State:
        return {path.name: path.read_bytes() for path in work.rglob("*.json")}

    check_every_write(tmp_path, lambda _: None, run, state)


@dataclass(frozen=True)
class Finding:
    """What an experiment writes down."""

    number: int


def test_a_full_disk_is_an_error_of_ensembed_and_of_the_system(tmp_path: Path) -> None:
    with full_disk(tmp_path, 1), pytest.raises(DiskFullError, match=rf"{tmp_path}/a cannot .*free space .*{tmp_path}"):
        write_atomically(tmp_path / "a", b"data")
    with full_disk(tmp_path, 1), pytest.raises(OSError, match="No space left on device; free space"):
        make_folder(tmp_path / "b" / "c")
    assert "quota exceeded; free" in str(disk_error(OSError(errno.EDQUOT, "Disk quota exceeded"), tmp_path))
    assert disk_error(OSError(errno.EIO, "input/output error"), tmp_path / "a").filename == str(tmp_path / "a")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("store", ["faiss", "usearch"])
def test_a_store_that_does_not_fit_on_the_disk_keeps_its_last_state(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(store)
    module = importlib.import_module(f"ensembed.integrations.{store}")
    Store: Any = module.FaissStore if store == "faiss" else module.UsearchStore
    kept = Store.create(tmp_path / "store", DemoEncoder(8))
    kept.add([1], ["one"])
    kept.save()
    kept.add(list(range(2, 50)), [f"text {i}" for i in range(2, 50)])
    monkeypatch.setattr(secrets, "token_hex", lambda n: "0" * 2 * n)
    temporary = tmp_path / "store" / ".index-0000000000000000.00000000.tmp"
    temporary.symlink_to("/dev/full")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 10, 0))
    with pytest.raises(StoreError, match=r"cannot save .*No space left on device; free space"):
        kept.save()
    assert Store.open(tmp_path / "store", DemoEncoder(8)).search(["one"], k=10).ids.tolist() == [[1]]
    kept.save()
    assert len(Store.open(tmp_path / "store", DemoEncoder(8)).search(["one"], k=100).ids[0]) == 49


@pytest.mark.parametrize("rows", [3, 1500])  # one graph fails in its last bytes, one before
def test_a_graph_that_does_not_fit_on_the_disk_is_named(
    rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("usearch")
    index = Index.create(tmp_path / "index", DemoEncoder(4), kind="hnsw", graph_rows=10_000)
    monkeypatch.setattr(secrets, "token_hex", lambda n: "0" * 2 * n)
    temporary = tmp_path / "index" / ".graph-000002.usearch.00000000.tmp"
    texts = [f"text {i}" for i in range(rows)]
    if rows > 1000:  # the graph is built when rows are added: these are kept without it
        link_after_cleaning(monkeypatch, temporary)
        with pytest.warns(
            RuntimeWarning, match=r"the change is saved; .*graph-000002.*: No space left on device; free space"
        ):
            index.add(texts)
    else:
        index.add(texts)
        link_after_cleaning(monkeypatch, temporary)
        with pytest.raises(
            DiskFullError, match=r"graph-000002.* cannot be written: No space left on device; free space"
        ):
            index.build_graph()
    again = Index.open(tmp_path / "index", DemoEncoder(4), verify=True)
    assert again.manifest.graph is None
    assert len(again) == rows
    monkeypatch.undo()
    again.build_graph()
    assert Index.open(tmp_path / "index", DemoEncoder(4), verify=True).manifest.graph is not None


def link_after_cleaning(monkeypatch: pytest.MonkeyPatch, temporary: Path) -> None:
    """Have the file of a graph written to a full disk."""
    from ensembed.search import hnsw_graph

    usual = hnsw_graph._empty_graph
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 10, 0))

    def empty_graph(manifest: Any) -> Any:  # noqa: ANN401 - usearch has no types
        temporary.symlink_to("/dev/full")
        return usual(manifest)

    monkeypatch.setattr(hnsw_graph, "_empty_graph", empty_graph)


def test_standard_output_on_a_full_disk_is_named(tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("\n".join(TEXTS))
    command = [sys.executable, "-m", "ensembed", "encode", "-e", "demo?dim=4", str(tmp_path / "corpus.txt"), "--json"]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "error: output cannot be written: [Errno 28] No space left on device; free space" in done.stderr
    assert "Traceback" not in done.stderr
