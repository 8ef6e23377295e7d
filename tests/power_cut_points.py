"""Run by the tests in a process of its own: cut the power at every operation of a change to files, and go on.

    python power_cut_points.py FOLDER CASE…

What a disk may hold after each power cut must be the state before the change or after it, and after it once the change
was over; then the change must be possible. Prints as JSON, by case, how many such disks there were, and how many had
the change; or what went wrong.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import itertools
import json
import os
import shutil
import sys
import tarfile
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import power_cut
from served_data import Site, described, serving, zipped

from ensembed import Ensemble, ListCorpus, load, open_encoder
from ensembed.distil.distil_job import Job
from ensembed.distil.distillation import Plan, distil, prepare
from ensembed.encoders.demo_encoder import DemoEncoder
from ensembed.encoders.tfhub import tfhub_encoder
from ensembed.errors import CorruptViewError
from ensembed.fetch import fetcher
from ensembed.fetch.catalog import CatalogEntry, DataSet, PinnedFile, Source
from ensembed.fetch.download import download
from ensembed.fetch.fetcher import fetch_data_set
from ensembed.methods import GCCA, SVD, Autoencoder, Average, Method
from ensembed.methods.encoder_maps import Ridge
from ensembed.models.translation import translate
from ensembed.paper.notebook import Notebook
from ensembed.search import Index
from ensembed.search.migration import migrate
from ensembed.views import View, ViewStore

SENTENCES = [f"{who} {does} the {what}" for who in ("a dog", "she") for does in ("sees", "has") for what in "abc"]
NAMES = ("demo?dim=5&seed=1", "demo?dim=4&seed=2")
INDEXED = DemoEncoder(4)
WORDS = ("a", "man", "dogs", "run", "snow", "the")


@dataclass(frozen=True)
class Case:
    """A change to the files in a folder.

    Attributes:
        change: makes it.
        read: returns the state, to be compared; raises if it is damaged.
        prepare: makes the state before.
    """

    change: Callable[[Path], object]
    read: Callable[[Path], Any]
    prepare: Callable[[Path], object] = lambda _: None


def embed(folder: Path) -> None:
    # The folders above the store do not exist either.
    store = ViewStore(folder / "new" / "views", shard_rows=4)
    Ensemble(NAMES[:1]).fit(SENTENCES, SVD(dim=3), store=store)


def views(folder: Path) -> list[bytes]:
    """Return the rows of every complete view."""
    return sorted(np.asarray(View(manifest.parent)).tobytes() for manifest in folder.rglob("manifest.json"))


def save(folder: Path, method: Method) -> None:
    store = ViewStore(tempfile.mkdtemp(dir=folder.parent))
    Ensemble(NAMES).fit(SENTENCES, method, store=store).save(folder / "models" / "model")


def model(folder: Path) -> bytes:
    if not (folder / "models" / "model" / "config.json").exists():
        return b""
    return load(folder / "models" / "model").encode(SENTENCES).tobytes()


def build(folder: Path) -> None:
    index = Index.create(folder / "new" / "index", INDEXED, source="demo?dim=4", dtype="int8")
    for start in (0, 6):
        numbers = range(start, start + 6)
        index.add([f"text {i}" for i in numbers], [f"id{i}" for i in numbers], [{"n": i} for i in numbers])


def opened(folder: Path) -> Index:
    return Index.open(folder / "new" / "index", INDEXED)


def rows(folder: Path) -> list[str]:
    if not (folder / "new" / "index" / "index.json").exists():
        return []
    index = opened(folder)
    index.verify()
    [hits] = index.search(["a dog"], k=1000) if len(index) else [[]]
    return sorted(f"{hit.id} {hit.text} {hit.metadata} {hit.score:.9f}" for hit in hits)


def graph_rows(folder: Path) -> tuple[list[str], int]:
    return rows(folder), opened(folder).facts["graph"]


def create(folder: Path) -> None:
    index = Index.create(folder / "new" / "index", INDEXED, source="demo?dim=4", dtype="int8", remake=True)
    index.add(["a dog", "a cat"], ["dog", "cat"])


def vector_store(library: str) -> Any:  # noqa: ANN401 - a class, whose library need not be there
    if library == "faiss":
        from ensembed.integrations.faiss import FaissStore

        return FaissStore
    from ensembed.integrations.usearch import UsearchStore

    return UsearchStore


def fill_store(folder: Path, *ids: int, library: str = "usearch") -> None:
    kind, place = vector_store(library), folder / "stores" / "store"
    exists = (place / "store.json").exists()
    store = kind.open(place, INDEXED) if exists else kind.create(place, INDEXED)
    store.add(list(ids), [f"text {i}" for i in ids])
    store.save()


def store_rows(folder: Path, library: str = "usearch") -> list[int]:
    place = folder / "stores" / "store"
    if not (place / "store.json").exists():
        return []
    return sorted(vector_store(library).open(place, INDEXED).search(["text 1"], k=100).ids[0].tolist())


def convert(folder: Path, options: str = "") -> bytes:
    from make_words import glove_text, small_vectors

    source, corpus = folder.parent / "vectors.txt", folder.parent / "corpus.txt"
    if not source.exists():
        source.write_bytes(glove_text(small_vectors(60)))
        corpus.write_text("\n".join(SENTENCES))
    os.environ["ENSEMBED_CACHE"] = str(folder / "cache")
    return open_encoder(f"words:{source}{options.format(corpus)}").encode(["the dog sleeps", "a cat"]).tobytes()


def word_cache(folder: Path) -> bytes:
    """Return the vectors that a converted file gives; nothing if there is none."""
    converted = [path for path in (folder / "cache" / "words").glob("*") if path.is_dir() and path.name[0] != "."]
    return convert(folder) if converted else b""


WEIGHTED = "?pooling=sif&corpus={}"


def word_weights(folder: Path) -> bytes:
    """Return the vectors that weights fitted on a corpus give; nothing if there are none."""
    return convert(folder, WEIGHTED) if list((folder / "cache" / "words" / "fitted").glob("*.arrays")) else b""


def convert_pickle(folder: Path) -> bytes:
    from make_paranmt import make_paranmt

    source = folder.parent / "pickles"
    source.mkdir(exist_ok=True)
    os.environ["ENSEMBED_CACHE"] = str(folder / "cache")
    return open_encoder(make_paranmt(source)).encode(["a dog"]).tobytes()


def converted_pickle(folder: Path) -> bytes:
    return convert_pickle(folder) if list((folder / "cache" / "paranmt").glob("*.safetensors")) else b""


def unpack(folder: Path) -> Path:
    """Unpack an archive with what could be a SavedModel."""
    archive = folder.parent / "model.tar.gz"
    if not archive.exists():
        with tarfile.open(archive, "w:gz") as file:
            for name, data in (("saved_model.pb", b"a graph"), ("variables/variables.index", b"weights")):
                member = tarfile.TarInfo(name)
                member.size = len(data)
                file.addfile(member, io.BytesIO(data))
    os.environ["ENSEMBED_CACHE"] = str(folder / "cache")
    return tfhub_encoder._unpacked(archive, "a model", lambda *_: None)


def unpacked(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder that counts as a SavedModel."""
    places = [graph.parent for graph in (folder / "cache" / "tfhub").glob("[!.]*/saved_model.pb")]
    return {str(path.relative_to(place)): path.read_bytes() for place in places for path in place.rglob("*.*")}


def note(folder: Path) -> None:
    Notebook(folder / "new" / "records").record(list[int], "a fact", lambda: [1, 2, 3])


def noted(folder: Path) -> list[int]:
    """Return the record that an experiment finds; nothing if it computes it again."""
    with tempfile.TemporaryDirectory() as copy:
        shutil.copytree(folder, copy, dirs_exist_ok=True)
        return Notebook(Path(copy) / "new" / "records").record(list[int], "a fact", list)


def export(folder: Path, method: Method, *, merged: bool) -> None:
    from make_onnx import write_onnx

    from ensembed.integrations.onnx import export_model

    work = Path(tempfile.mkdtemp(dir=folder.parent))  # outside: only what the export writes counts
    members = [f"onnx:{write_onnx(folder.parent / f'encoder{j}', seed=j)}" for j in range(2)]
    model = Ensemble(members).fit(SENTENCES, method, store=ViewStore(work))
    export_model(model, folder / "new" / "graphs", merged=merged)


def exported(folder: Path) -> bytes:
    from ensembed.integrations.onnx import OnnxModel

    if not (folder / "new" / "graphs" / "config.json").exists():
        return b""
    return OnnxModel(folder / "new" / "graphs", threads=1).encode(SENTENCES).tobytes()


def damage(folder: Path, kind: str) -> None:
    """Fill views, and damage one shard of one of them."""
    embed(folder)
    [shard] = folder.rglob("shard-000000004-*.npy")
    data = shard.read_bytes()
    if kind == "folder":
        shard.unlink()
        shard.mkdir()
    else:
        shard.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


def repair(folder: Path) -> None:
    store = ViewStore(folder / "new" / "views", shard_rows=4)
    store.embed_all(ListCorpus(SENTENCES), Ensemble(NAMES[:1]).encoders, verify=True)


def whole_views(folder: Path) -> list[bytes]:
    """Return the rows of every complete view that is not damaged."""
    with contextlib.suppress(CorruptViewError):
        return views(folder)
    return []


CONTENT = {"model.bin": bytes(range(256)) * 40, "tokens.json": b'{"tokens": []}'}
_at_the_end = contextlib.ExitStack()


@functools.cache
def site() -> Site:
    """A server on this machine that breaks off every answer."""
    os.environ["no_proxy"] = "127.0.0.1"
    running = _at_the_end.enter_context(serving())
    running.files = {"/one.bin": CONTENT["model.bin"], "/all.zip": zipped(CONTENT)}
    running.most = 6000
    return running


def fetch_file(folder: Path) -> None:
    os.environ["ENSEMBED_CACHE"] = str(folder / "new" / "cache")
    download(f"{site().url}/one.bin")


def fetched_file(folder: Path) -> bytes:
    """Return the file that counts as downloaded; nothing if there is none."""
    asked = len(site().asked)
    with tempfile.TemporaryDirectory() as copy:
        shutil.copytree(folder, copy, dirs_exist_ok=True)
        os.environ["ENSEMBED_CACHE"] = str(Path(copy) / "new" / "cache")
        content = download(f"{site().url}/one.bin").read_bytes()
    return content if len(site().asked) == asked else b""


def data_set() -> DataSet:
    return described(
        "made-up", "folder/made-up", {name: (name, data) for name, data in CONTENT.items()}, f"{site().url}/all.zip"
    )


def fetch_set(folder: Path) -> None:
    os.environ["ENSEMBED_CACHE"] = str(folder / "new" / "cache")
    fetch_data_set(data_set(), folder / "data")


def fetched_set(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "data" / "folder" / "made-up").glob("*")}


def pull_entry(folder: Path) -> None:
    """Pull two files out of an archive that a stand-in for npm puts there."""
    os.environ["ENSEMBED_CACHE"] = str(folder / "new" / "cache")
    paths = {name: name for name in CONTENT}
    files = {name: PinnedFile(hashlib.sha256(data).hexdigest(), len(data)) for name, data in CONTENT.items()}
    source = Source("npm", "demo", paths, "1.0.0", 10_000)

    def pack(_source: Source, work: Path, _progress: object) -> Path:
        (work / "demo.zip").write_bytes(zipped(CONTENT))
        return work / "demo.zip"

    wanted = CatalogEntry("one", "a demo", "static", "none", files, (source,))
    with patch.object(fetcher, "download_from_registry", pack), patch.object(fetcher, "entry", lambda _: wanted):
        fetcher.pull(["one"])


def pulled(folder: Path) -> dict[str, bytes]:
    """Return the files that have the right sizes; those of the wrong ones are pulled again."""
    place = folder / "new" / "cache" / "encoders" / "one"
    files = {path.name: path.read_bytes() for path in place.glob("*")}
    return files if {name: len(data) for name, data in files.items()} == {n: len(d) for n, d in CONTENT.items()} else {}


def pull_half(folder: Path) -> None:
    """Pull, and lose a file and half of another."""
    pull_entry(folder)
    place = folder / "new" / "cache" / "encoders" / "one"
    (place / "tokens.json").unlink()
    os.truncate(place / "model.bin", 100)


def train(folder: Path, stop: int | None) -> tuple[int, bytes]:
    """Train until the end, or until an interruption in an epoch; return the first epoch and the vectors."""
    epochs: list[int] = []

    def report(label: str, done: int, _total: int | None, /) -> None:
        if label.startswith("train ·"):
            epochs.append(done)
            if done == stop:
                raise KeyboardInterrupt

    numbers = np.random.default_rng(0)
    given = [numbers.standard_normal((20, dim), np.float32) for dim in (4, 3)]
    method = Autoencoder(dim=2, epochs=6, batch_size=8)
    with contextlib.suppress(KeyboardInterrupt):
        meta = method.fit(given, threads=1, progress=report, checkpoint=folder / "new" / "training")
        return epochs[0], meta.transform(given).tobytes()
    return epochs[0], b""


def trained(folder: Path) -> tuple[int, bytes]:
    """Return how a copy of the training goes on."""
    with tempfile.TemporaryDirectory() as copy:
        shutil.copytree(folder, copy, dirs_exist_ok=True)
        return train(Path(copy), None)


TEXTS = [f"{a} {b} {c}" for a in WORDS for b in WORDS for c in WORDS]


def map_to(folder: Path, target: str) -> None:
    store = ViewStore(tempfile.mkdtemp(dir=folder.parent))
    translate("demo?dim=6", target, TEXTS, kinds=[Ridge()], store=store).save(folder / "models" / "model")


def build_old(folder: Path) -> None:
    index = Index.create(folder / "old", "demo?dim=6")
    index.add(TEXTS[:120])
    index.add(TEXTS[120:])


def move(folder: Path, sample: int = 5000) -> None:
    store = ViewStore(tempfile.mkdtemp(dir=folder.parent))  # outside: only the new index counts
    how: dict[str, Any] = {"source": "demo?dim=4", "kinds": [Ridge()], "least": 0, "store": store}
    migrate(folder / "old", folder / "new" / "index", INDEXED, sample=sample, **how)


def migrated(folder: Path) -> None:
    build_old(folder)
    move(folder, sample=200)  # a few rows are translated


def own_rows(folder: Path) -> list[str]:
    """Return the rows of the index, as the model that it names finds them."""
    index = Index.open(folder / "new" / "index", verify=True)
    [hits] = index.search(["a dog"], k=1000)
    return sorted(f"{hit.id} {hit.text} {hit.metadata} {hit.score:.9f}" for hit in hits)


def student_plan(folder: Path, seed: int) -> Plan:
    from make_static import small_tokenizer

    tokenizer = folder.parent / "tokenizer.json"
    small_tokenizer().save(str(tokenizer))
    return Plan(start=("none",), tokenizer=tokenizer, dim=3, epochs=2, batch_size=100, seed=seed)


def make_student(folder: Path, seed: int) -> None:
    """Distil into a new folder or over a student; the training, too, is in the folder."""
    plan, store = student_plan(folder, seed), ViewStore(folder / "store")
    distil(DemoEncoder(5), ListCorpus(TEXTS), plan, folder / "new" / "student", store=store, threads=1, force=True)


def make_job(folder: Path) -> None:
    store = ViewStore(tempfile.mkdtemp(dir=folder.parent))
    prepare(DemoEncoder(5), ListCorpus(TEXTS), student_plan(folder, 0), folder / "new" / "job", store=store)


def job(folder: Path) -> bytes:
    """Return the facts of a job, whose files are checked when it is opened."""
    place = folder / "new" / "job"
    if not (place / "job.json").exists():
        return b""
    Job.open(place)
    return (place / "job.json").read_bytes()


def student(folder: Path) -> bytes:
    if not (folder / "new" / "student").exists():
        return b""
    return load(f"model2vec:{folder / 'new' / 'student'}").encode(TEXTS[:20]).tobytes()


CASES = {
    "views": Case(embed, views),
    "first save": Case(lambda folder: save(folder, Average()), model),
    "save over a model": Case(lambda folder: save(folder, GCCA(dim=3)), model, lambda folder: save(folder, Average())),
    "new index": Case(create, rows),
    "add": Case(lambda folder: opened(folder).add(["a new text", "a dog"], ["new", "dog"]), rows, build),
    "replace": Case(
        lambda folder: opened(folder).add(["another 3", "another 9"], ["id3", "id9"], replace=True), rows, build
    ),
    # So much of one segment that it is compacted, and a little of another.
    "delete": Case(lambda folder: opened(folder).delete(["id0", "id1", "id2", "id7"]), rows, build),
    "compact": Case(lambda folder: opened(folder).compact(), rows, build),
    "graph": Case(lambda folder: opened(folder).build_graph(), graph_rows, build),
    "folder of vectors": Case(
        lambda folder: fill_store(folder, 4, 5), store_rows, lambda folder: fill_store(folder, 1, 2, 3)
    ),
    "new folder of vectors": Case(lambda folder: fill_store(folder, 1, 2, 3), store_rows),
    "folder of FAISS": Case(
        lambda folder: fill_store(folder, 4, 5, library="faiss"),
        lambda folder: store_rows(folder, "faiss"),
        lambda folder: fill_store(folder, 1, 2, 3, library="faiss"),
    ),
    "words": Case(convert, word_cache),
    "weights of words": Case(lambda folder: convert(folder, WEIGHTED), word_weights),
    "pickle of words": Case(convert_pickle, converted_pickle),
    "unpacked archive": Case(unpack, unpacked),
    "record of an experiment": Case(note, noted),
    "first ONNX export": Case(lambda folder: export(folder, Average(), merged=True), exported),
    "ONNX export": Case(
        lambda folder: export(folder, SVD(dim=3), merged=False),
        exported,
        lambda folder: export(folder, Average(), merged=False),
    ),
    "repair": Case(repair, whole_views, lambda folder: damage(folder, "bit")),
    "repair of a folder": Case(repair, whole_views, lambda folder: damage(folder, "folder")),
    "download": Case(fetch_file, fetched_file),
    "data set": Case(fetch_set, fetched_set),
    "pull": Case(pull_entry, pulled),
    "pull over damaged files": Case(pull_entry, pulled, pull_half),
    "first checkpoint": Case(lambda folder: train(folder, 3), trained),
    "translate": Case(
        lambda folder: map_to(folder, "demo?dim=4&seed=1"), model, lambda folder: map_to(folder, "demo?dim=3&seed=1")
    ),
    "migrate": Case(move, rows, build_old),
    "embed translated rows": Case(
        lambda folder: Index.open(folder / "new" / "index").embed_translated(10_000), own_rows, migrated
    ),
    "change of the model": Case(
        lambda folder: Index.open(folder / "new" / "index").change_model("demo?dim=3"), own_rows, create
    ),
    "job": Case(make_job, job),
    "first student": Case(lambda folder: make_student(folder, 0), student),
    "over a student": Case(lambda folder: make_student(folder, 1), student, lambda folder: make_student(folder, 0)),
    "checkpoint": Case(lambda folder: train(folder, 5), trained, lambda folder: train(folder, 3)),
}


def main(case: Case, root: Path) -> list[int]:
    base, changed = root / "base", root / "changed"
    base.mkdir(parents=True)
    case.prepare(base)
    shutil.copytree(base, changed)
    before = case.read(base)
    moments = power_cut.record(changed, lambda: case.change(changed))
    after = case.read(changed)
    numbers = itertools.count()

    def new_folder() -> Path:
        folder = root / f"cut-{next(numbers)}"
        folder.mkdir()
        return folder

    complete = 0
    for folder, over, how in power_cut.states_after_power_cuts(changed.stat().st_ino, moments, new_folder):
        state = case.read(folder)
        if state != after and (over or state != before):
            problem = "lost after it was complete" if over else "neither old nor new"
            raise AssertionError(f"{folder}, {how}: {problem}: {state!r}")
        complete += state == after
        if state != after or before == after:
            case.change(folder)
            if case.read(folder) != after:
                raise AssertionError(f"{folder}, {how}: cannot go on")
        shutil.rmtree(folder)
    return [next(numbers), complete]


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent / "encoders"))
    power_cut.install()
    outcomes: dict[str, list[int] | str] = {}
    with _at_the_end:
        for number, name in enumerate(sys.argv[2:]):
            try:
                outcomes[name] = main(CASES[name], Path(sys.argv[1]) / str(number))
            except Exception:  # noqa: BLE001 - which the test reports as that of its case
                outcomes[name] = traceback.format_exc()
    print(json.dumps(outcomes))
