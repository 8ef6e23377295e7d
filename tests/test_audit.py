"""What an audit found in version 0.1, by names that version 0.1 has, too: every one of these tests fails on it.

The artefacts are those of a stranger: every hash in them is right. Other findings have their tests in the rooms:
`FINDINGS` names them all.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from child_memory import refusal
from loopback import Stranger, recording_server
from make_st import name_a_module, write_code, write_st

from ensembed import Ensemble, load
from ensembed.errors import EnsembedError
from ensembed.methods import Concat
from ensembed.search import Index

FINDINGS = {
    "a stranger's index runs code and sends queries away": [
        "test_audit.py::test_an_index_of_a_stranger_sends_nothing",
        "test_audit.py::test_an_index_of_a_stranger_runs_no_code",
        "encoders/test_consent.py::test_nothing_is_opened_without_consent",
    ],
    "code in a folder of sentence-transformers runs without trust": [
        "encoders/test_st.py::test_nothing_is_read_outside_of_the_folder",
        "encoders/test_st.py::test_only_modules_of_the_library_are_imported",
        "encoders/test_st_loading.py::test_code_is_refused_however_the_file_that_names_it_is_spelled",
    ],
    "a saved model fetches any URL": [
        "test_audit.py::test_a_saved_model_of_a_stranger_fetches_nothing",
        "encoders/test_consent.py::test_no_request_is_sent_without_consent",
    ],
    "clients that do not read replies": [
        "serve/test_serve_replies.py::test_clients_that_do_not_read_take_little_memory_and_delay_nobody",
        "serve/test_serve_replies.py::test_replies_beyond_the_budget_get_503_until_others_are_read_or_dropped",
    ],
    "bombs": [
        "test_audit.py::test_an_archive_with_a_header_of_800_megabytes_takes_little_memory",
        "test_bombs.py::test_gzipped_json_of_word_vectors",
        "test_bombs.py::test_tar_archive_with_a_large_header",
        "test_bombs.py::test_model_whose_config_declares_a_large_dim",
    ],
    "damage to an index gives a traceback": ["search/test_index_damage.py::test_a_damaged_file_of_an_index_is_named"],
    "bit flips change hits silently": ["search/test_index_damage.py::test_no_flipped_bit_changes_a_hit_silently"],
    "saving over a model is not atomic": [
        "test_audit.py::test_a_save_that_is_killed_between_any_two_renames_leaves_a_whole_model"
    ],
    "a segment name writes outside the index": [
        "search/test_index_damage.py::test_a_segment_name_cannot_lead_out_of_the_folder"
    ],
    "deeply nested JSON": [
        "encoders/test_hostile_files.py::test_deeply_nested_settings_of_a_transformer",
        "encoders/test_hostile_files.py::test_deeply_nested_config_of_model2vec",
        "encoders/test_hostile_files.py::test_deeply_nested_config_of_a_model",
        "search/test_index_damage.py::test_a_deeply_nested_manifest_is_damaged",
    ],
    "OverflowError and UnicodeDecodeError in readers": [
        "encoders/test_hostile_files.py::test_wink_files_that_are_no_text",
        "encoders/test_hostile_files.py::test_tensors_of_impossible_shapes",
        "encoders/test_hostile_files.py::test_padding_token_beyond_the_positions",
    ],
    "disk full without a path": [
        "test_full_disk.py::test_a_disk_that_becomes_full_at_any_write_is_named_and_the_command_can_continue",
        "test_full_disk.py::test_a_graph_that_does_not_fit_on_the_disk_is_named",
    ],
    "embed --verify does not repair a shard that became a folder or a loop": [
        "views/test_view_damage.py::test_verify_repairs_a_file_that_became_a_folder_or_a_loop"
    ],
    "/card and /similarity show paths": [
        "serve/test_serve_api.py::test_card_and_similarity_name_members_without_folders"
    ],
    "invalid requests are logged without a bound": [
        "serve/test_serve_abuse.py::test_invalid_requests_are_logged_once_with_a_count"
    ],
    "search prints stored escape sequences": [
        "cli/test_search_commands.py::test_stored_escape_sequences_do_not_reach_the_terminal"
    ],
    "a part of a download is trusted by its size": [
        "fetch/test_download.py::test_a_part_whose_bytes_are_not_those_that_were_received_is_discarded"
    ],
    "parents of new folders are not synced": [
        "test_power_cuts.py::test_a_power_cut_at_any_operation_leaves_the_old_state_or_the_new"
    ],
    "a hanging model survives SIGTERM": [
        "serve/test_serve_shutdown.py::test_process_ends_though_the_model_hangs_in_a_thread_pool_of_its_own"
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
    facts = json.loads((folder / "index.json").read_text())
    del facts["sha256"]
    facts["model"]["source"] = source
    seal = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    (folder / "index.json").write_text(json.dumps(facts | {"sha256": seal}))
    return folder


def make_model(folder: Path, member: str) -> Path:
    """A saved model whose only member has this name."""
    Ensemble(["demo?dim=4"]).fit(["a dog barks"], Concat()).save(folder)
    config = json.loads((folder / "config.json").read_text())
    del config["sha256"]
    config["members"][0]["name"] = member
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
