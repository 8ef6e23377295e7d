"""What really happens with consent and without it: requests, imports, code; and how a command line gives it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hostile_artefacts import REMOTE, SENTENCE, hostile_index, hostile_model, record_requests
from loopback import Stranger, recording_server
from loopback_hub import COMMIT, loopback_hub
from make_model2vec import make_model2vec
from make_st import name_a_module, write_code, write_st

from ensembed import Ensemble, load
from ensembed.cli import main
from ensembed.corpora import as_corpus
from ensembed.encoders import Request, open_encoder
from ensembed.encoders.base import AllowedName, UntrustedName
from ensembed.encoders.demo_encoder import DemoEncoder
from ensembed.encoders.names_and_consent import Trust, allow, parse_name
from ensembed.errors import ConsentError, EnsembedError
from ensembed.integrations.model_source import Source
from ensembed.methods import Concat
from ensembed.models.opening import open_model
from ensembed.models.saved_model import read_model, write_model
from ensembed.search import Index
from ensembed.views import View, ViewStore


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """The requests that reach a kind."""
    return record_requests(monkeypatch)


@pytest.fixture
def stranger() -> Iterator[Stranger]:
    with recording_server() as server:
        yield server


OPENINGS: dict[str, Callable[[Path, str, Trust], object]] = {
    "a model": lambda folder, name, trust: load(hostile_model(folder / "m", name), trust=trust),
    "an index": lambda folder, name, trust: Index.open(hostile_index(folder / "i", name), trust=trust).search(["a"]),
    "a name": lambda _, name, trust: Source(name, trust=trust).model,
}


@pytest.mark.parametrize("artefact", OPENINGS)
@pytest.mark.parametrize("name", ["openai:{}/v1#m?retries=0", "tfhub:{}/model.tar.gz", "paranmt:{}/vectors.pickle"])
def test_no_request_is_sent_without_consent(tmp_path: Path, stranger: Stranger, artefact: str, name: str) -> None:
    name = name.format(stranger.url)
    with pytest.raises(ConsentError, match=r"(sends your sentences to|downloads) http://0\.0\.0\.0"):
        OPENINGS[artefact](tmp_path / "without", name, False)
    assert stranger.asked == []
    with pytest.raises(EnsembedError, match="404"):
        OPENINGS[artefact](tmp_path / "with", name, True)
    assert stranger.asked


@pytest.mark.parametrize("artefact", OPENINGS)
def test_no_package_is_imported_without_consent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, artefact: str) -> None:
    site, marker = tmp_path / "site", tmp_path / "ran"
    facts = site / "loud-1.0.dist-info"
    facts.mkdir(parents=True)
    (site / "loud.py").write_text(f"from pathlib import Path\nPath({str(marker)!r}).touch()\n")
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: loud\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[ensembed.encoders]\nshout = loud:open_shout\n")
    monkeypatch.syspath_prepend(site)
    monkeypatch.delitem(sys.modules, "loud", raising=False)
    with pytest.raises(ConsentError, match=r"runs the package loud 1\.0.*trust=\"code\""):
        OPENINGS[artefact](tmp_path / "without", "shout:x", False)
    assert not marker.exists()
    with pytest.raises(EnsembedError):  # it has no opener
        OPENINGS[artefact](tmp_path / "with", "shout:x", True)
    assert marker.exists()


@pytest.mark.parametrize("artefact", OPENINGS)
def test_no_code_of_a_model_runs_without_consent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, artefact: str
) -> None:
    folder, marker = write_st(tmp_path / f"by-{artefact.split()[1]}"), tmp_path / "ran"
    write_code(folder, marker)
    name_a_module(folder)
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    name = f"st:{folder}?trust_remote_code=true"
    with pytest.raises(ConsentError, match=r"runs code that comes with its weights.*trust=\"code\""):
        OPENINGS[artefact](tmp_path / "without", name, False)
    assert not marker.exists()
    if artefact == "a name":
        OPENINGS[artefact](tmp_path / "with", name, "code")
    else:
        with pytest.raises(EnsembedError):  # it is not the encoder that was saved
            OPENINGS[artefact](tmp_path / "with", name, "code")
    assert marker.exists()


PROGRAM = """
import sys
from ensembed import load
from ensembed.errors import ConsentError

try:
    print(load(sys.argv[1], trust=sys.argv[2]).ensemble.encoders[0].spec.name)
except ConsentError as error:
    print(error)
"""


def test_a_member_of_the_hub_is_downloaded_once_with_consent(tmp_path: Path) -> None:
    name = make_model2vec(tmp_path / "files")
    settings = replace(open_encoder(name).spec, name="", revision=COMMIT)
    model = tmp_path / "model"
    Ensemble([name]).fit([SENTENCE], Concat()).save(model)
    saved = read_model(model)
    member = replace(saved.members[0], name=UntrustedName("model2vec:me/model"), settings=settings)
    write_model(model, replace(saved, members=(member,)))
    with loopback_hub(Path(parse_name(name).location), "me/model") as hub:
        refused = hub.python(PROGRAM, str(model), "code", home=tmp_path / "home")
        assert "'me/model' is not in the hub's cache and would be downloaded" in refused.stdout, refused.stderr
        assert hub.asked == []
        for trust in ("network", ""):  # the second time from the cache
            result = hub.python(PROGRAM, str(model), trust, home=tmp_path / "home")
            assert result.stdout == "model2vec:me/model\n", result.stderr
            assert bool(hub.asked) == bool(trust)
            hub.asked.clear()


def test_command_line_refuses_and_names_the_trust_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = hostile_model(tmp_path / "model", REMOTE)
    assert main(["similarity", str(folder), "a", "b"]) == 1
    assert (
        "sends your sentences to https://embeddings.example.org/v1/embeddings. To allow that, pass --trust network"
        in (capsys.readouterr().err)
    )
    assert json.loads((folder / "config.json").read_text())["members"][0]["name"] == REMOTE


@pytest.mark.parametrize(
    ("words", "granted"),
    [
        ("similarity --trust FOLDER a b", "code,network,files"),
        ("similarity FOLDER a b --trust", "code,network,files"),
        ("similarity --trust code FOLDER a b", "code"),
        ("similarity FOLDER --trust=files,network a b", "files,network"),
        ("similarity FOLDER a --trust code --trust network b", "code,network"),
        ("similarity FOLDER --trust network -- a --trust", "network"),
        ("similarity FOLDER a b", ""),
    ],
)
def test_command_line_takes_each_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str, granted: str
) -> None:
    given: list[Trust] = []

    def record(name: UntrustedName, trust: Trust) -> AllowedName:
        given.append(trust)
        return allow(name, trust)

    monkeypatch.setattr("ensembed.models.opening.allow", record)
    folder = hostile_model(tmp_path / "model", "demo?dim=4")
    assert main([str(folder) if word == "FOLDER" else word for word in words.split()]) == 0, capsys.readouterr().err
    assert given == [granted]


def test_command_line_opens_what_one_effect_allows_and_nothing_else(
    tmp_path: Path, opened: list[Request], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = hostile_model(tmp_path / "model", "tfhub:https://example.org/model")
    for consent, missing in ((["network"], "code"), (["code"], "network"), (["files"], "code,network")):
        assert main(["similarity", str(folder), "a", "b", "--trust", *consent]) == 1
        assert f'pass --trust {missing} (trust="{missing}")' in capsys.readouterr().err
        assert not opened
    main(["similarity", str(folder), "a", "b", "--trust", "code,network"])
    assert [request.name for request in opened] == ["tfhub:https://example.org/model"]


def test_command_line_refuses_an_unknown_effect(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["similarity", str(tmp_path), "a", "b", "--trust=code,netwrok"]) == 2
    assert "--trust takes code, network, files, with commas between them, not 'netwrok'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("consent", "hint"),
    [
        (["--trust", "fiels"], "Did you mean --trust=files?"),
        (["--trust", "Files"], "Did you mean --trust=files?"),
        (["--trust", "code, network"], "Did you mean --trust=code,network?"),
        (["--trust", "code network"], "Did you mean --trust=code,network?"),
        (["--trust", "a,b"], "not 'a'. To allow everything, write --trust at the end."),
        (["--trust", ""], "not ''. To allow everything"),
        (["--trust="], "not ''. To allow everything"),
    ],
)
def test_command_line_does_not_take_a_misspelt_effect_for_consent_to_all(
    tmp_path: Path, opened: list[Request], capsys: pytest.CaptureFixture[str], consent: list[str], hint: str
) -> None:
    folder = hostile_model(tmp_path / "model", "tfhub:https://example.org/model")
    assert main(["similarity", str(folder), "a", "b", *consent]) == 2
    assert hint in " ".join(capsys.readouterr().err.split())
    assert opened == []


def test_folder_of_a_model_that_is_no_plain_one_needs_consent(tmp_path: Path) -> None:
    folder = hostile_model(tmp_path / "model", "demo?dim=4")
    name = UntrustedName(f"/proc/self/root{folder}")
    with pytest.raises(ConsentError, match=r"model '/proc/self/root.*pass --trust files "):
        open_model(name, trust="code,network")
    assert open_model(UntrustedName(str(folder))).spec.dim == 4
    if Path(name.text).exists():  # on Linux
        assert open_model(name, trust="files").spec.dim == 4


def test_a_name_in_the_manifest_of_a_view_is_never_opened(tmp_path: Path, opened: list[Request]) -> None:
    store, encoder = ViewStore(tmp_path), DemoEncoder(4)
    corpus = as_corpus([SENTENCE, "a cat"])
    view = store.embed(corpus, encoder)
    hostile = replace(view.manifest, spec=replace(view.spec, name="shout:loud"))
    (view.folder / "manifest.json").write_bytes(hostile.to_bytes())
    again = store.embed(corpus, encoder)
    assert again.spec.name == "shout:loud"
    Concat().fit([View(view.folder)]).transform([again])
    assert again.damaged() == []
    assert opened == []


def test_the_only_name_that_opens_comes_from_allow() -> None:
    encoder = open_encoder(allow(UntrustedName("demo?dim=3"), trust=False))
    assert encoder.spec.name == "demo?dim=3"
    assert isinstance(allow(UntrustedName("demo"), trust=True), AllowedName)
