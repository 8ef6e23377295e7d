"""What an audit found in version 0.1, by names that version 0.1 has, too: every test of a finding fails on it.

The artefacts are those of a stranger: every hash in them is right. `FINDINGS` names the tests of all findings. Those in
files named after the audit use what version 0.1 has, too: each was seen to fail there, with fastapi, which 0.1 needs,
and those of sentence-transformers with version 5.7.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import random
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from child_memory import refusal
from full_disk import full_disk
from loopback import Stranger, recording_server
from make_st import name_a_module, write_code, write_st
from starlette.testclient import TestClient

from ensembed import Ensemble, load, open_encoder
from ensembed.cli import main
from ensembed.errors import EnsembedError
from ensembed.methods import Concat
from ensembed.search import Index
from ensembed.serve import create_app

FINDINGS = {
    "a stranger's index runs code and sends queries away": [
        "test_audit.py::test_an_index_of_a_stranger_sends_nothing",
        "test_audit.py::test_an_index_of_a_stranger_runs_no_code",
        "encoders/test_consent.py::test_nothing_is_opened_without_consent",
    ],
    "code in a folder of sentence-transformers runs without trust": [
        "encoders/test_st_audit.py::test_code_outside_of_the_folder_does_not_run",
        "encoders/test_st.py::test_nothing_is_read_outside_of_the_folder",
        "encoders/test_st.py::test_only_modules_of_the_library_are_imported",
        "encoders/test_st_loading.py::test_code_is_refused_however_the_file_that_names_it_is_spelled",
    ],
    "a saved model fetches any URL": [
        "test_audit.py::test_a_saved_model_of_a_stranger_fetches_nothing",
        "test_audit.py::test_a_saved_model_of_a_stranger_asks_no_hub",
        "test_audit.py::test_a_saved_model_of_a_stranger_runs_no_plugin",
        "test_audit.py::test_a_saved_model_of_a_stranger_opens_no_program",
        "encoders/test_consent_effects.py::test_no_request_is_sent_without_consent",
    ],
    "clients that do not read replies": [
        "test_audit_server.py::test_clients_that_do_not_read_take_little_memory",
        "serve/test_serve_replies.py::test_clients_that_do_not_read_take_little_memory_and_delay_nobody",
        "serve/test_serve_replies.py::test_replies_beyond_the_budget_get_503_until_others_are_read_or_dropped",
    ],
    "bombs": [
        "test_audit_readers.py::test_a_megabyte_of_gzipped_json_takes_little_memory",
        "test_audit_readers.py::test_a_config_that_declares_300_million_dimensions_takes_little_memory",
        "test_audit.py::test_an_archive_with_a_header_of_800_megabytes_takes_little_memory",
        "test_bombs.py::test_gzipped_json_of_word_vectors",
        "test_bombs.py::test_tar_archive_with_a_large_header",
        "test_bombs.py::test_model_whose_config_declares_a_large_dim",
    ],
    "damage to an index gives a traceback": [
        "test_audit_readers.py::test_plain_damage_to_an_index_is_an_error_of_the_package",
        "search/test_index_damage.py::test_a_damaged_file_of_an_index_is_named",
    ],
    "bit flips change hits silently": [
        "test_audit.py::test_no_flipped_bit_of_an_index_changes_a_hit_silently",
        "search/test_index_damage.py::test_no_flipped_bit_changes_a_hit_silently",
    ],
    "saving over a model is not atomic": [
        "test_audit.py::test_a_save_that_is_killed_between_any_two_renames_leaves_a_whole_model"
    ],
    "a segment name writes outside the index": [
        "test_audit.py::test_a_segment_name_of_a_stranger_writes_nothing_outside_of_the_index",
        "search/test_index_damage.py::test_a_segment_name_cannot_lead_out_of_the_folder",
    ],
    "deeply nested JSON": [
        "test_audit_readers.py::test_deeply_nested_json_is_refused_by_an_error_of_the_package",
        "test_audit_readers.py::test_deeply_nested_json_in_the_cache_of_word_vectors_is_replaced",
        "encoders/test_st_audit.py::test_deeply_nested_json_is_refused_by_an_error_of_the_package",
        "test_audit.py::test_deeply_nested_json_is_refused_by_an_error_of_the_package",
        "encoders/test_hostile_files.py::test_deeply_nested_settings_of_a_transformer",
        "encoders/test_hostile_files.py::test_deeply_nested_config_of_model2vec",
        "encoders/test_hostile_files.py::test_deeply_nested_config_of_a_model",
        "search/test_index_damage.py::test_a_deeply_nested_manifest_is_damaged",
    ],
    "OverflowError and UnicodeDecodeError in readers": [
        "test_audit_readers.py::test_numbers_of_word_vectors_that_no_float_holds_are_an_error_of_the_package",
        "test_audit_readers.py::test_tensors_of_impossible_shapes_are_an_error_of_the_package",
        "test_audit_readers.py::test_a_padding_token_of_400_digits_is_no_overflow",
        "test_audit_readers.py::test_a_name_in_a_graph_that_is_no_text_is_an_error_of_the_package",
        "encoders/test_hostile_files.py::test_wink_files_that_are_no_text",
        "encoders/test_hostile_files.py::test_tensors_of_impossible_shapes",
        "encoders/test_hostile_files.py::test_padding_token_beyond_the_positions",
    ],
    "disk full without a path": [
        "test_audit_readers.py::test_a_graph_that_does_not_fit_on_the_disk_is_an_error_of_the_package",
        "test_audit.py::test_a_full_disk_is_told_with_a_path",
        "test_full_disk.py::test_a_disk_that_becomes_full_at_any_write_is_named_and_the_command_can_continue",
        "test_full_disk.py::test_a_graph_that_does_not_fit_on_the_disk_is_named",
    ],
    "embed --verify does not repair a shard that became a folder or a loop": [
        "test_audit.py::test_verify_repairs_a_shard_that_became_something_else",
        "views/test_view_damage.py::test_verify_repairs_a_file_that_became_a_folder_or_a_loop",
    ],
    "/card and /similarity show paths": [
        "test_audit.py::test_card_and_similarity_show_no_folders",
        "serve/test_serve_api.py::test_card_and_similarity_name_members_without_folders",
    ],
    "invalid requests are logged without a bound": [
        "test_audit_server.py::test_invalid_requests_do_not_fill_the_log",
        "serve/test_serve_abuse.py::test_invalid_requests_are_logged_once_with_a_count",
    ],
    "search prints stored escape sequences": [
        "test_audit.py::test_stored_escape_sequences_do_not_reach_the_terminal",
        "cli/test_search_commands.py::test_stored_escape_sequences_do_not_reach_the_terminal",
    ],
    "a part of a download is trusted by its size": [
        "test_audit_server.py::test_a_part_of_a_download_is_not_believed_by_its_size",
        "fetch/test_download.py::test_a_part_whose_bytes_are_not_those_that_were_received_is_discarded",
    ],
    "parents of new folders are not synced": [
        "test_audit.py::test_what_was_written_into_a_new_folder_is_there_after_a_power_cut",
        "test_power_cuts.py::test_a_power_cut_at_any_operation_leaves_the_old_state_or_the_new",
    ],
    "a hanging model survives SIGTERM": [
        "test_audit_server.py::test_a_server_ends_though_its_model_hangs",
        "serve/test_serve_shutdown.py::test_process_ends_though_the_model_hangs_in_a_thread_pool_of_its_own",
    ],
}
"""What was found, and the tests of it."""


@pytest.mark.parametrize("finding", FINDINGS)
def test_every_finding_has_tests(finding: str) -> None:
    for test in FINDINGS[finding]:
        file, _, name = test.partition("::")
        assert f"def {name}(" in (Path(__file__).parent / file).read_text()


@pytest.fixture
def stranger() -> Iterator[Stranger]:
    with recording_server() as server:
        yield server


def make_index(folder: Path, source: str, *, rows: bool = True) -> Path:
    """An index whose model is opened from `source`."""
    index = Index.create(folder, "demo?dim=4")
    if rows:
        index.add(["a dog barks"])
    return change_index(folder, lambda facts: facts["model"].update(source=source))


def change_index(folder: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """Change the facts of an index, and make their hash right again, as a stranger would."""
    facts = json.loads((folder / "index.json").read_text())
    del facts["sha256"]
    change(facts)
    seal = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    (folder / "index.json").write_text(json.dumps(facts | {"sha256": seal}))
    return folder


def make_model(folder: Path, member: str) -> Path:
    """A saved model whose only member has this name."""
    Ensemble(["demo?dim=4"]).fit(["a dog barks"], Concat()).save(folder)
    return change_model(folder, lambda config: config["members"][0].update(name=member))


def change_model(folder: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """Change the configuration of a model, and make its hash right again."""
    config = json.loads((folder / "config.json").read_text())
    del config["sha256"]
    change(config)
    tensors = (folder / "model.safetensors").read_bytes()
    seal = hashlib.sha256(json.dumps(config, sort_keys=True).encode() + b"\0" + tensors).hexdigest()
    (folder / "config.json").write_text(json.dumps(config | {"sha256": seal}))
    return folder


def run(*words: object, **environment: str) -> None:
    """Run a command, which must fail, but not by a traceback."""
    command = [sys.executable, "-m", "ensembed", *map(str, words)]
    done = subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr


def add_lines(folder: Path, *options: str) -> None:
    (folder.parent / "lines.txt").write_text("a cat sleeps\n")
    run("index", folder, folder.parent / "lines.txt", *options)


WAYS: dict[str, Callable[[Path], object]] = {
    "search": lambda folder: run("search", folder, "my secret query"),
    "index": add_lines,
    "index without rows": lambda folder: add_lines(folder, "--kind", "exact"),
    "Index.model": lambda folder: Index.open(folder).model,
    "Index.search": lambda folder: Index.open(folder).search(["my secret query"]),
    "Index.add": lambda folder: Index.open(folder).add(["a text"]),
}


@pytest.mark.parametrize("way", WAYS)
def test_an_index_of_a_stranger_sends_nothing(tmp_path: Path, stranger: Stranger, way: str) -> None:
    index = make_index(tmp_path / "index", f"openai:{stranger.url}/v1#m?retries=0", rows=way != "index without rows")
    with suppress(EnsembedError):
        WAYS[way](index)
    assert stranger.asked == []


def test_an_index_of_a_stranger_runs_no_code(tmp_path: Path) -> None:
    folder, marker = write_st(tmp_path / "code"), tmp_path / "ran"
    write_code(folder, marker)
    name_a_module(folder)
    index = make_index(tmp_path / "index", f"st:{folder}?trust_remote_code=true")
    run("search", index, "a dog", HF_MODULES_CACHE=str(tmp_path / "modules"))
    assert not marker.exists()


@pytest.mark.parametrize("member", ["tfhub:{}/model.tar.gz", "paranmt:{}/vectors.pickle"])
def test_a_saved_model_of_a_stranger_fetches_nothing(tmp_path: Path, stranger: Stranger, member: str) -> None:
    with pytest.raises(EnsembedError):
        load(make_model(tmp_path / "model", member.format(stranger.url)))
    assert stranger.asked == []


def test_a_saved_model_of_a_stranger_asks_no_hub(tmp_path: Path, stranger: Stranger) -> None:
    model = make_model(tmp_path / "model", "model2vec:owner/name")
    home = {"HF_ENDPOINT": stranger.url, "HF_HOME": str(tmp_path / "home")}
    with suppress(AssertionError):  # of the exit code, which was another one in version 0.1
        run("similarity", model, "a dog", "a cat", **home)
    assert stranger.asked == []


def test_a_saved_model_of_a_stranger_runs_no_plugin(tmp_path: Path) -> None:
    facts, marker = tmp_path / "lib" / "strange-1.0.dist-info", tmp_path / "ran"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: strange\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[ensembed.encoders]\nstrange = strange:open_strange\n")
    code = f"def open_strange(request):\n    open({str(marker)!r}, 'w').close()\n    raise OSError\n"
    (tmp_path / "lib" / "strange.py").write_text(code)
    paths = os.pathsep.join([str(tmp_path / "lib"), os.environ.get("PYTHONPATH", "")])
    model = make_model(tmp_path / "model", "strange:anything")
    run("similarity", model, "a dog", "a cat", PYTHONPATH=paths)
    assert not marker.exists()


def test_a_saved_model_of_a_stranger_opens_no_program(tmp_path: Path) -> None:
    (tmp_path / "program").mkdir()
    (tmp_path / "program" / "saved_model.pb").write_bytes(b"")
    with pytest.raises(EnsembedError, match="trust"):
        load(make_model(tmp_path / "model", f"tfhub:{tmp_path / 'program'}"))


def test_an_archive_with_a_header_of_800_megabytes_takes_little_memory(tmp_path: Path) -> None:
    header = tarfile.TarInfo("pax")
    header.type, header.size = tarfile.XHDTYPE, 800 << 20
    path = tmp_path / "model.tar.gz"
    block = gzip.compress(b"x" * (1 << 20))  # gzip files may be put behind each other
    noise = gzip.compress(os.urandom(10 << 20), 0)  # so that the archive is not too small for what it unpacks to
    path.write_bytes(gzip.compress(header.tobuf(tarfile.GNU_FORMAT)) + 790 * block + noise)
    before = "from ensembed.encoders import open_encoder"
    assert str(path) in refusal("open_encoder('tfhub:' + sys.argv[1])", path, before=before)


SAVE = """
import os, sys
from ensembed import Ensemble
from ensembed.methods import Concat

folder, left = sys.argv[1], int(sys.argv[2])
Ensemble(["demo?dim=3"]).fit(["a dog"], Concat()).save(folder)
model = Ensemble(["demo?dim=5"]).fit(["a dog"], Concat())

def counted(function):
    def run(*arguments, **options):
        global left
        left -= 1
        if left < 0:
            os._exit(9)  # as after SIGKILL
        return function(*arguments, **options)
    return run

os.rename, os.replace, os.unlink = map(counted, (os.rename, os.replace, os.unlink))
model.save(folder)
"""


def test_a_save_that_is_killed_between_any_two_renames_leaves_a_whole_model(tmp_path: Path) -> None:
    dims = []
    for left in range(20):
        folder = tmp_path / str(left)
        child = subprocess.run([sys.executable, "-c", SAVE, str(folder), str(left)], check=False, timeout=60)
        vectors = load(folder).encode(["a dog"])
        dims.append(vectors.shape[1])
        if child.returncode == 0:
            break
        assert child.returncode == 9
    assert dims == sorted(dims)
    assert {dims[0], dims[-1]} == {3, 5}


def command(*words: str) -> int:
    """Run a command in this process and return its exit code. In version 0.1, `main` takes no arguments."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["ensembed", *words])
        try:
            return main() or 0
        except SystemExit as end:
            return int(end.code or 0)


def answer(call: Callable[[], object]) -> object:
    """Return what a call returns, or the message of an error of the package; other errors are failures."""
    try:
        return call()
    except EnsembedError as error:
        return str(error)


def test_no_flipped_bit_of_an_index_changes_a_hit_silently(tmp_path: Path) -> None:
    encoder, texts = open_encoder("demo?dim=8"), [f"text number {i}" for i in range(40)]
    Index.create(tmp_path, encoder, source="demo?dim=8").add(texts)
    expected = Index.open(tmp_path, encoder).search(["text number 7"], k=40)
    chance = random.Random(5)  # noqa: S311 - the same bits in every run
    for path in sorted(tmp_path.glob("0*.*")):
        data = path.read_bytes()
        for at in chance.sample(range(len(data)), 25):
            path.write_bytes(data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :])
            hits = answer(lambda: Index.open(tmp_path, encoder).search(["text number 7"], k=40))
            assert isinstance(hits, str) or hits == expected, f"byte {at} of {path.name}"
        path.write_bytes(data)


def test_a_segment_name_of_a_stranger_writes_nothing_outside_of_the_index(tmp_path: Path) -> None:
    folder = make_index(tmp_path / "a" / "index", "demo?dim=4")
    change_index(folder, lambda facts: facts["segments"][0].update(name="../../X"))
    answer(lambda: Index.open(folder, "demo?dim=4").delete(["0"]))
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_full_disk_is_told_with_a_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "lines.txt").write_text("a dog barks\na cat sleeps\n")
    for n in range(1, 100):
        folder = tmp_path / f"index{n}"
        with full_disk(tmp_path, n) as disk:
            code = command("index", str(folder), str(tmp_path / "lines.txt"), "--model", "demo?dim=4", "--quiet")
        message = capsys.readouterr().err
        if not disk.failed:
            assert code == 0
            return
        assert (code, str(tmp_path) in message) in ((0, False), (1, True)), message
    pytest.fail("the disk never had enough room")


POWER_CUT = """
import itertools, sys
from pathlib import Path

import power_cut
from ensembed import Ensemble, ListCorpus, ViewStore, load, open_encoder
from ensembed.methods import Concat
from ensembed.search import Index

texts, encoder = ["a dog barks", "a cat sleeps"], open_encoder("demo?dim=4")
model = Ensemble(["demo?dim=4"]).fit(texts, Concat())
WAYS = {
    "model": (lambda folder: model.save(folder), lambda folder: load(folder)),
    "index": (lambda folder: Index.create(folder, encoder).add(texts), lambda folder: Index.open(folder, encoder)),
    "view": (
        lambda folder: ViewStore(folder).embed(ListCorpus(texts), encoder),
        lambda folder: ViewStore(folder).view(ListCorpus(texts), encoder.spec),
    ),
}
write, read = WAYS[sys.argv[2]]
disk, numbers = Path(sys.argv[1]) / "disk", itertools.count()
disk.mkdir()

def new_folder():
    folder = disk.parent / f"after{next(numbers)}"
    folder.mkdir()
    return folder

power_cut.install()
moments = power_cut.record(disk, lambda: write(disk / "new" / "deep" / "folder"))
for folder, over, _ in power_cut.states_after_power_cuts(disk.stat().st_ino, moments[-1:], new_folder):
    read(folder / "new" / "deep" / "folder")
"""


@pytest.mark.parametrize("way", ["model", "index", "view"])
def test_what_was_written_into_a_new_folder_is_there_after_a_power_cut(tmp_path: Path, way: str) -> None:
    paths = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    child = subprocess.run(
        [sys.executable, "-c", POWER_CUT, str(tmp_path), way],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert child.returncode == 0, child.stderr


@pytest.mark.parametrize("kind", ["folder", "loop"])
def test_verify_repairs_a_shard_that_became_something_else(tmp_path: Path, kind: str) -> None:
    (tmp_path / "lines.txt").write_text("a dog barks\na cat sleeps\n")
    line = ["embed", str(tmp_path / "lines.txt"), "-e", "demo?dim=4", "--store", str(tmp_path / "store"), "--quiet"]
    assert command(*line) == 0
    shard = next((tmp_path / "store").rglob("shard*"))
    data = shard.read_bytes()
    shard.unlink()
    if kind == "folder":
        shard.mkdir()
    else:
        shard.symlink_to(shard.name)
    assert command(*line, "--verify") == 0
    assert shard.read_bytes() == data


def test_stored_escape_sequences_do_not_reach_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Index.create(tmp_path / "index", "demo?dim=4").add(["a dog \x1b]0;owned\x07\x1b[2J\x9b31m \u202e barks"])
    for options in ([], ["--json"]):
        assert command("search", str(tmp_path / "index"), "a dog", *options) == 0
        assert not set(capsys.readouterr().out) & set("\x1b\x07\x9b\u202e")


def test_deeply_nested_json_is_refused_by_an_error_of_the_package(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("[" * 10**5 + "]" * 10**5)
    for name in ("model.safetensors", "tokenizer.json"):
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(EnsembedError):
        open_encoder(f"model2vec:{tmp_path}")


def test_card_and_similarity_show_no_folders(tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "inner.txt").write_text("dog 1 0 1\ncat 0 1 1\nbarks 1 1 1\n")
    model = Ensemble([f"words:{tmp_path}/secret/inner.txt", "demo?dim=3"]).fit(["dog barks", "cat"], Concat())
    with TestClient(create_app(model)) as client:
        assert "secret" not in client.get("/card").text
        assert "secret" not in client.post("/similarity", json={"texts": ["dog", "cat", "barks"]}).text
