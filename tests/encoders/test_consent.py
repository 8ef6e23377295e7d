"""Names out of files do nothing that needs consent until the caller gives it: every artefact, kind and entry point."""

from __future__ import annotations

import ast
import io
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import click
import pytest
from hostile_artefacts import REMOTE, SENTENCE, hostile_index, hostile_model, record_requests

from ensembed import load
from ensembed.cli import SUMMARIES, cli, main
from ensembed.encoders import Request, names_and_consent, open_encoder
from ensembed.encoders.base import UntrustedName
from ensembed.encoders.demo_encoder import DemoEncoder
from ensembed.encoders.names_and_consent import KINDS, Trust, allow
from ensembed.errors import ConsentError, EnsembedError, InputError
from ensembed.integrations.faiss import FaissStore
from ensembed.integrations.model_source import Source
from ensembed.integrations.vector_stores import StoreFacts
from ensembed.models.hub_models import from_pretrained
from ensembed.models.opening import open_model
from ensembed.models.saved_model import read_model
from ensembed.models.translation import translate
from ensembed.search import Index
from ensembed.search.index_files import read_manifest


def effects(name: str, trust: Trust = False) -> str:
    """What a name is refused for, as `trust` spells it."""
    with pytest.raises(ConsentError) as caught:
        allow(UntrustedName(name), trust)
    return str(caught.value).partition("pass --trust ")[2].partition(" ")[0]


# --- one name ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "needed"),
    [
        ("st:a/b?trust_remote_code=true", "code"),
        ("tfhub:/models/use", "code"),
        ("tfhub:https://tfhub.dev/google/use/4", "code,network"),
        ("paranmt:http://example.org/vectors.zip", "network"),
        (REMOTE, "network"),
        ("openai:http://0.0.0.0:80/v1#m", "network"),
        ("words:/dev/zero", "files"),
        ("words:/proc/self/environ", "files"),
        ("words:/data/../proc/self/root/data/words.txt", "files"),
        ("static://server/share", "files"),
        ("onnx:\\\\server\\share", "files"),
        ("glove?pooling=usif&corpus=/dev/stdin", "files"),
    ],
)
def test_a_name_needs_consent_for_exactly_what_it_does(name: str, needed: str) -> None:
    assert effects(name) == needed
    assert allow(UntrustedName(name), needed).text == allow(UntrustedName(name), True).text == name
    others = {"code", "network", "files"} - set(needed.split(","))
    assert effects(name, ",".join(sorted(others))) == needed
    for part in needed.split(",") if "," in needed else []:
        assert effects(name, part) == needed.replace(part, "").strip(",")


HARMLESS = [
    *("minilm", "demo?dim=3", "st:a/b?trust_remote_code=false", "words:/home/me/vectors.txt", "onnx:../models/bge"),
    *("openai:http://localhost:8000/v1#m", "openai:http://127.0.0.1/v1#m?dimensions=4", "paranmt:vectors.pickle"),
]


@pytest.mark.parametrize("name", HARMLESS)
def test_other_names_need_no_consent(name: str) -> None:
    assert allow(UntrustedName(name), trust=False).text == name


def test_setting_the_key_of_a_server_is_consent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENSEMBED_API_KEY_EMBEDDINGS_EXAMPLE_ORG", "secret")
    assert allow(UntrustedName(REMOTE), trust=False).text == REMOTE


def test_a_model_of_the_hub_is_opened_offline_without_consent() -> None:
    assert allow(UntrustedName("st:a/b"), trust=False).offline
    assert allow(UntrustedName("st:a/b"), trust="code,files").offline
    assert not allow(UntrustedName("st:a/b"), trust="network").offline


def test_the_message_says_what_would_happen_and_how_to_allow_it() -> None:
    with pytest.raises(ConsentError) as caught:
        allow(UntrustedName("tfhub:https://me:secret@example.org/model"), trust=False)
    assert str(caught.value) == (
        "encoder 'tfhub:https://***@example.org/model' runs the program that a SavedModel is and downloads "
        'https://***@example.org/model. To allow that, pass --trust code,network (trust="code,network"), or --trust '
        "(trust=True) to allow everything"
    )


def test_malformed_names_and_unknown_effects_are_refused() -> None:
    with pytest.raises(InputError, match="not a value for trust_remote_code"):
        allow(UntrustedName("st:a/b?trust_remote_code=perhaps"), trust=False)
    with pytest.raises(InputError, match="some of code,network,files, not 'netwrok'"):
        allow(UntrustedName("demo"), trust="netwrok")


def test_a_kind_that_nobody_has_checked_needs_consent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, "new", EntryPoint("new", "ensembed.encoders.wrappers:open_new", ""))
    assert effects("new:x") == "code"


def test_every_kind_of_ours_declares_its_effects() -> None:
    assert [scheme for scheme, kind in KINDS.items() if not hasattr(import_module(kind.module), "effects")] == []


def test_a_name_out_of_a_file_is_no_name_that_opens(tmp_path: Path) -> None:
    """The comments hold it for the type checker, too: it complains about those that are not needed."""
    with pytest.raises(InputError, match="not UntrustedName"):
        open_encoder(UntrustedName("demo"))  # type: ignore[arg-type]
    saved = read_model(hostile_model(tmp_path / "model", "demo?dim=4"))
    with pytest.raises(InputError, match="not UntrustedName"):
        open_encoder(saved.members[0].name)  # type: ignore[arg-type]
    assert saved.members[0].settings.name == ""
    source = read_manifest(hostile_index(tmp_path / "index", "demo?dim=4")).source
    with pytest.raises(InputError, match="not UntrustedName"):
        open_encoder(source)  # type: ignore[arg-type]
    facts = StoreFacts.from_json(StoreFacts.of("faiss", DemoEncoder()).to_json(), "faiss", "it")
    with pytest.raises(InputError, match="not UntrustedName"):
        open_encoder(facts.model)  # type: ignore[arg-type]


# --- every artefact, kind and entry point -----------------------------------------------------------------------------


# A name of every kind that does something when it is opened, and what `trust` calls it. "offline": it is opened, but
# may not use the network.
HOSTILE = {
    "model2vec": ("model2vec:somebody/model", "offline"),
    "onnx": ("onnx:/dev/zero", "files"),
    "openai": (REMOTE, "network"),
    "paranmt": ("paranmt:https://example.org/vectors.zip", "network"),
    "plugin": ("shout:loud", "code"),
    "st": ("st:somebody/model?trust_remote_code=true", "code"),
    "st of the hub": ("st:somebody/model", "offline"),
    "static": ("static:/dev/zero", "files"),
    "tfhub": ("tfhub:models/use", "code"),
    "use-lite": ("use-lite:/proc/self/fd/0", "files"),
    "use-m3": ("use-m3:/proc/self/fd/0", "files"),
    "words": ("words:/dev/stdin", "files"),
}


def test_every_kind_is_among_the_hostile_names() -> None:
    assert {kind.partition(" ")[0] for kind in HOSTILE} == KINDS.keys() - {"demo"} | {"plugin"}


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """The requests that reach a kind."""
    return record_requests(monkeypatch)


@dataclass(frozen=True)
class Entry:
    """A way in: what it opens (a model, an index, or a name that another library has kept), and how."""

    artefact: str
    open: Callable[[Path, Trust], object]


COMMANDS = set[str]()
"""The commands that are run."""


def command(*words: str) -> Callable[[Path, Trust], object]:
    """Run a command; FOLDER is the artefact, LINES a file with sentences, and INDEX a harmless index."""
    COMMANDS.add(words[0])

    def run(folder: Path, trust: Trust) -> None:
        lines = folder.parent / "lines.txt"
        lines.write_text("".join(f"sentence {i} of {i % 7} about {i % 5} dogs\n" for i in range(60)))
        (folder.parent / "pairs.tsv").write_text("1\ta dog\ta cat\n2\ta dog\tthe dog\n3\tthe sun\tthe sun\n")
        places = {"FOLDER": folder, "LINES": lines, "PAIRS": folder.parent / "pairs.tsv", "NEW": folder.parent / "new"}
        if "INDEX" in words:
            places["INDEX"] = folder.parent / "harmless"
            Index.create(places["INDEX"], "demo?dim=3").add([SENTENCE])
        consent = ["--trust"] if trust is True else ["--trust", trust] if trust else []
        if main([str(places.get(word, word)) for word in words] + consent):
            raise EnsembedError(sys.stderr.getvalue() if isinstance(sys.stderr, io.StringIO) else "exit status 1")

    return run


def sentence_transformer(folder: Path, trust: Trust) -> object:
    from ensembed.integrations.sentence_transformers import load as load_folder

    return load_folder(folder, trust=trust)


def to_sentence_transformer(given: Path, trust: Trust) -> object:
    from ensembed.integrations.sentence_transformers import to_sentence_transformer as convert

    return convert(str(given), trust=trust)


def langchain(given: Path, trust: Trust) -> object:
    from ensembed.integrations.langchain import EnsembedEmbeddings

    return EnsembedEmbeddings(str(given), trust=trust)


def mteb(given: Path, trust: Trust) -> object:
    from ensembed.integrations.mteb import MtebModel

    return MtebModel(str(given), trust=trust)


def haystack(given: Path, trust: Trust) -> object:
    from ensembed.integrations.haystack import EnsembedTextEmbedder

    data = EnsembedTextEmbedder(str(given)).to_dict()
    embedder = EnsembedTextEmbedder(str(given), trust=trust) if trust else EnsembedTextEmbedder.from_dict(data)
    return embedder.encoder


def llama_index(given: Path, trust: Trust) -> object:
    from ensembed.integrations.llama_index import EnsembedEmbedding

    return EnsembedEmbedding(str(given), trust=trust)


def chroma(given: Path, trust: Trust) -> object:
    from ensembed.integrations.chroma import EnsembedEmbeddingFunction

    if trust:
        return EnsembedEmbeddingFunction(str(given), trust=trust)
    return EnsembedEmbeddingFunction.build_from_config({"model": str(given), "fingerprint": "unknown"})


def bertopic(given: Path, trust: Trust) -> object:
    from ensembed.integrations.bertopic import EnsembedBackend

    return EnsembedBackend(str(given), trust=trust).embed([SENTENCE])


def usearch(given: Path, trust: Trust) -> object:
    from ensembed.integrations.usearch import UsearchStore

    return UsearchStore.create(None, str(given), trust=trust)


def qdrant(given: Path, trust: Trust) -> object:
    from ensembed.integrations.qdrant import QdrantStore

    return QdrantStore.create(":memory:", str(given), trust=trust)


def pgvector(given: Path, trust: Trust) -> object:
    from ensembed.integrations.pgvector import PgvectorStore

    return PgvectorStore.create("postgresql://nobody@127.0.0.1:1/none", str(given), trust=trust)


def reopened(module: str, store: str) -> Callable[[Path, Trust], object]:
    """Make a store with a harmless model, and open it with the name."""

    def run(given: Path, trust: Trust) -> None:
        kind = getattr(import_module(f"ensembed.integrations.{module}"), store)
        with tempfile.TemporaryDirectory() as folder:
            kind.create(Path(folder) / "store", DemoEncoder(4)).close()
            kind.open(Path(folder) / "store", str(given), trust=trust).close()

    return run


def pgvector_open(given: Path, trust: Trust) -> object:
    from ensembed.integrations.pgvector import PgvectorStore

    return PgvectorStore.open("postgresql://nobody@127.0.0.1:1/none", str(given), trust=trust)


def haystack_documents(given: Path, trust: Trust) -> object:
    from ensembed.integrations.haystack import EnsembedDocumentEmbedder

    return EnsembedDocumentEmbedder(str(given), trust=trust).encoder


def from_the_hub(folder: Path, trust: Trust) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ensembed.models.hub_models.fetch", lambda *_, **__: folder)
        return from_pretrained("somebody/model", trust=trust)


ENTRIES = {
    "load": Entry("model", lambda folder, trust: load(folder, trust=trust)),
    "load, going on without a member": Entry("model", lambda folder, trust: load(folder, missing="drop", trust=trust)),
    "open_model": Entry("model", lambda folder, trust: open_model(folder, trust=trust)),
    "from_pretrained": Entry("model", from_the_hub),
    "Index.create": Entry("model", lambda folder, trust: Index.create(folder / "new", folder, trust=trust)),
    "encode": Entry("model", command("encode", "FOLDER", "LINES", "--out", "/dev/null")),
    "similarity": Entry("model", command("similarity", "FOLDER", "a", "b")),
    "evaluate": Entry("model", command("evaluate", "FOLDER", "--pairs", "PAIRS")),
    "cluster": Entry("model", command("cluster", "FOLDER", "LINES", "-k", "2")),
    "compare": Entry("model", command("compare", "FOLDER", "demo", "--corpus", "LINES", "--store", "NEW")),
    "reliability": Entry("model", command("reliability", "LINES", "-e", "FOLDER", "--store", "NEW")),
    "choose": Entry("model", command("choose", "LINES", "-e", "FOLDER", "-e", "demo", "--store", "NEW")),
    "evaluate a task": Entry("model", command("evaluate", "FOLDER", "--task", "PAIRS", "--store", "NEW")),
    "distil": Entry("model", command("distil", "FOLDER", "LINES", "--out", "NEW")),
    "distil --report": Entry("model", command("distil", "demo", "LINES", "--report", "FOLDER")),
    "translate": Entry("model", command("translate", "FOLDER", "demo", "LINES", "--out", "NEW")),
    "translate to": Entry("model", command("translate", "demo", "FOLDER", "LINES", "--out", "NEW")),
    "translate()": Entry("model", lambda folder, trust: translate(folder, "demo", [SENTENCE], trust=trust)),
    "migrate": Entry("model", command("migrate", "INDEX", "--to", "FOLDER", "--out", "NEW", "--yes")),
    "search with a model": Entry("model", command("search", "INDEX", SENTENCE, "--query-model", "FOLDER")),
    "index with a model": Entry("model", command("index", "NEW", "LINES", "--model", "FOLDER")),
    "dedupe": Entry("model", command("dedupe", "FOLDER", "LINES", "--threshold", "0.9")),
    "serve": Entry("model", command("serve", "FOLDER", "--port", "0")),
    "sentence-transformers": Entry("model", sentence_transformer),
    "Index.model": Entry("index", lambda folder, trust: Index.open(folder, trust=trust).model),
    "Index.search": Entry("index", lambda folder, trust: Index.open(folder, trust=trust).search([SENTENCE])),
    "Index.add": Entry("index", lambda folder, trust: Index.open(folder, trust=trust).add(["new"])),
    "search": Entry("index", command("search", "FOLDER", SENTENCE)),
    "index": Entry("index", command("index", "FOLDER", "LINES")),
    "index without rows": Entry("empty index", command("index", "FOLDER", "LINES", "--kind", "exact")),
    "an index of a model": Entry("nested", lambda folder, trust: Index.open(folder, trust=trust).model),
    "Source": Entry("name", lambda name, trust: Source(str(name), trust=trust).model),
    "bertopic": Entry("name", bertopic),
    "chroma": Entry("name", chroma),
    "faiss": Entry("name", lambda name, trust: FaissStore.create(None, str(name), trust=trust)),
    "faiss, open": Entry("name", reopened("faiss", "FaissStore")),
    "haystack": Entry("name", haystack),
    "haystack, documents": Entry("name", haystack_documents),
    "langchain": Entry("name", langchain),
    "llama_index": Entry("name", llama_index),
    "mteb": Entry("name", mteb),
    "pgvector": Entry("name", pgvector),
    "pgvector, open": Entry("name", pgvector_open),
    "qdrant": Entry("name", qdrant),
    "qdrant, open": Entry("name", reopened("qdrant", "QdrantStore")),
    "to_sentence_transformer": Entry("name", to_sentence_transformer),
    "usearch": Entry("name", usearch),
    "usearch, open": Entry("name", reopened("usearch", "UsearchStore")),
}

# The public functions that take `trust`: every one is called by an entry.
FUNCTIONS = {
    *("encoders.names_and_consent.allow", "models.opening.load", "models.opening.open_model"),
    *("models.hub_models.from_pretrained", "models.translation.translate"),
    *("search.search_index.Index.create", "search.search_index.Index.open"),
    *("integrations.model_source.Source", "integrations.vector_stores.store_model"),
    *("integrations.sentence_transformers.load", "integrations.sentence_transformers.to_sentence_transformer"),
    *("integrations.bertopic.EnsembedBackend", "integrations.chroma.EnsembedEmbeddingFunction"),
    *("integrations.haystack.EnsembedTextEmbedder", "integrations.haystack.EnsembedDocumentEmbedder"),
    *("integrations.langchain.EnsembedEmbeddings", "integrations.llama_index.EnsembedEmbedding"),
    *(
        "integrations.mteb.MtebModel",
        "integrations.vector_stores.FolderStore.open",
        "integrations.faiss.FaissStore.create",
    ),
    *("integrations.usearch.UsearchStore.create", "integrations.usearch.UsearchStore.open"),
    *("integrations.qdrant.QdrantStore.create", "integrations.qdrant.QdrantStore.open"),
    *("integrations.pgvector.PgvectorStore.create", "integrations.pgvector.PgvectorStore.open"),
}


def make(artefact: str, folder: Path, name: str) -> Any:  # noqa: ANN401 - a path, or a name
    if artefact == "model":
        return hostile_model(folder / "model", name)
    if artefact == "nested":
        return hostile_index(folder / "index", str(hostile_model(folder / "model", name).absolute()))
    return name if artefact == "name" else hostile_index(folder / "index", name, rows=artefact == "index")


def test_every_command_that_takes_consent_is_an_entry() -> None:
    context = click.Context(cli)
    commands = {name: cli.get_command(context, name) for name in SUMMARIES}
    taking = {name for name, known in commands.items() if known and "trust" in {each.name for each in known.params}}
    assert taking == COMMANDS


@pytest.mark.parametrize("entry", ["Index.model", "chroma"])
def test_a_model_on_another_machine_is_not_looked_at_without_consent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str
) -> None:
    """On Windows a look at a share connects to its machine."""
    given, seen = make(ENTRIES[entry].artefact, tmp_path, "//server/share"), list[object]()
    monkeypatch.setattr("ensembed.models.opening.is_model", seen.append)
    with pytest.raises(ConsentError, match="--trust files"):
        ENTRIES[entry].open(given, False)
    assert seen == []


PACKAGE = Path(names_and_consent.__file__).parents[1]


def test_only_allowing_makes_a_name_that_opens() -> None:
    """Other processes open again what was opened here: the workers of Ray, and of sentence-transformers' pools."""
    places = {path.name for path in PACKAGE.rglob("*.py") if "AllowedName(" in path.read_text()}
    assert places == {"names_and_consent.py", "worker_encoder.py", "sentence_transformers.py"}


def test_every_function_that_takes_consent_is_known() -> None:
    taking = set()
    for path in PACKAGE.rglob("*.py"):
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        for where in ast.parse(path.read_text()).body:
            methods = where.body if isinstance(where, ast.ClassDef) else []
            owner = [where.name] if isinstance(where, ast.ClassDef) else []
            for function in [where, *methods]:
                if isinstance(function, ast.FunctionDef):
                    arguments = (*function.args.args, *function.args.kwonlyargs)
                    place = [*owner, *([] if function.name == "__init__" else [function.name])]
                    if "trust" in {argument.arg for argument in arguments} and not place[-1].startswith("_"):
                        taking.add(".".join([module, *place]))
    assert taking == FUNCTIONS


@pytest.mark.parametrize("kind", HOSTILE)
def test_the_loader_of_the_library_of_sentence_transformers_gives_no_consent(
    tmp_path: Path, opened: list[Request], kind: str
) -> None:
    from ensembed.integrations.sentence_transformers import MetaEncoderModule

    name, needed = HOSTILE[kind]
    with pytest.raises(ConsentError) if needed != "offline" else suppress(EnsembedError):
        MetaEncoderModule.load(str(hostile_model(tmp_path, name)), trust_remote_code=True, local_files_only=True)
    assert all(request.offline for request in opened) if needed == "offline" else opened == []


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("entry", ENTRIES)
def test_nothing_is_opened_without_consent(
    tmp_path: Path, opened: list[Request], monkeypatch: pytest.MonkeyPatch, entry: str, kind: str
) -> None:
    monkeypatch.setattr("ensembed.serve.uvicorn_server.run", lambda *_, **__: 0)
    name, needed = HOSTILE[kind]
    way_in = ENTRIES[entry]
    refusals = []
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", io.StringIO())
        try:
            way_in.open(make(way_in.artefact, tmp_path / "without", name), False)
        except EnsembedError as error:
            refusals.append(str(error))
    if needed == "offline":
        assert all(request.offline for request in opened)
    else:
        assert opened == []
        assert f'pass --trust {needed} (trust="{needed}")' in refusals[0]
    opened.clear()
    exactly = "network" if needed == "offline" else needed
    with suppress(EnsembedError):  # an index says that the model is not its own
        way_in.open(make(way_in.artefact, tmp_path / "with", name), exactly)
    assert [request.name for request in opened][:1] == [name]
    assert opened[0].offline == (exactly != "network")


def test_the_name_of_a_model_on_the_hub_is_fetched_only_with_consent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, fetched = hostile_model(tmp_path / "model", "demo?dim=4"), list[bool]()

    def fetch(*_: object, offline: bool, **__: object) -> Path:
        fetched.append(offline)
        return model

    monkeypatch.setattr("ensembed.models.hub_models.fetch", fetch)
    folder = hostile_index(tmp_path / "index", "hub:somebody/model")
    for trust, offline in ((False, True), ("code", True), ("network", False), (True, False)):
        fetched.clear()
        with pytest.raises(EnsembedError, match="was made with"):  # the model is a meta-encoder, and the index's is not
            _ = Index.open(folder, trust=trust).model
        assert fetched
        assert set(fetched) == {offline}
