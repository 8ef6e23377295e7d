"""Where TensorFlow models come from: a server on this machine that does what tfhub.dev does, archives, folders."""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import shutil
import socket
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from loopback_tfhub import Hub, serving
from make_tfhub import expected, make_tf2, pack

from ensembed.encoders import open_encoder
from ensembed.encoders.tfhub import tfhub_encoder
from ensembed.errors import EncoderError, InputError, MissingError
from ensembed.fetch import archives

MODEL = "/google/tiny/1"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tf2(tmp_path_factory.mktemp("saved-model") / "tf2")


@pytest.fixture(scope="module")
def archive(model: Path) -> Path:
    return pack(model, model.with_name("tf2.tar.gz"))


@pytest.fixture
def hub(archive: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A server with the model; the developer's environment does not say where models are kept."""
    monkeypatch.delenv("TFHUB_CACHE_DIR", raising=False)
    monkeypatch.setenv("no_proxy", "*")
    with serving() as hub:
        hub.archives[MODEL] = archive.read_bytes()
        yield hub


def cached(tmp_path: Path) -> list[str]:
    """What is in the test's cache: models, not the locks."""
    return sorted(path.name for path in (tmp_path / "cache" / "tfhub").glob("*") if path.suffix != ".lock")


@pytest.mark.parametrize("location", ["gs://bucket/model", "file:///model", "s3://b/m", "ram://x", "FTP://host/model"])
def test_urls_other_than_http_are_refused_by_tfhub(location: str) -> None:
    with pytest.raises(InputError, match="models come from http and https addresses or from folders, not from"):
        open_encoder(f"tfhub:{location}")


@pytest.mark.parametrize("location", ["", "nothing-here", "nothing.tar.gz"])
def test_path_without_a_model_is_named(tmp_path: Path, location: str) -> None:
    with pytest.raises(InputError, match=rf"{re.escape(str(tmp_path / location))} is no folder with a saved_model.pb"):
        open_encoder(f"tfhub:{tmp_path / location}")


def test_too_long_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="File name too long"):
        open_encoder(f"tfhub:{tmp_path / ('x' * 1000)}")


def test_name_without_a_path_is_refused() -> None:
    with pytest.raises(InputError, match="has no path"):
        open_encoder("tfhub:")


def test_url_is_downloaded_once(hub: Hub, model: Path, tmp_path: Path) -> None:
    reports: list[tuple[str, int, int | None]] = []
    first = open_encoder(f"tfhub:{hub.url}{MODEL}", progress=lambda *report: reports.append(report))
    again = open_encoder(f"tfhub:{hub.url}{MODEL}?max_chars=5")
    assert hub.seen == [f"{MODEL}?tf-hub-format=compressed"]
    assert first.spec.key == open_encoder(f"tfhub:{model}").spec.key != again.spec.key
    assert first.spec.name == f"tfhub:{hub.url}{MODEL}"
    np.testing.assert_allclose(first.encode(["a man"]), expected(["a man"]), atol=1e-6)
    size = len(hub.archives[MODEL])
    assert (f"download {MODEL}", size, size) in reports
    assert len(cached(tmp_path)) == 1


def test_redirects_are_followed_and_queries_are_kept(hub: Hub) -> None:
    open_encoder(f"tfhub:{hub.url}/moved{MODEL}?batch_size=2")
    open_encoder(f"tfhub:{hub.url}{MODEL}?token=b%20c#?batch_size=2")
    assert hub.seen[1:] == [f"{MODEL}?tf-hub-format=compressed", f"{MODEL}?token=b%20c&tf-hub-format=compressed"]


def test_downloads_of_tensorflow_hub_are_used(
    hub: Hub, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TFHUB_CACHE_DIR", str(tmp_path / "theirs"))
    theirs, ours = f"{hub.url}{MODEL}", f"{hub.url}/moved{MODEL}"
    places = {
        url: tmp_path / "theirs" / hashlib.sha1(url.encode(), usedforsecurity=False).hexdigest()
        for url in (theirs, ours)
    }
    shutil.copytree(model, places[theirs])
    open_encoder(f"tfhub:{theirs}")
    assert hub.seen == []
    open_encoder(f"tfhub:{ours}")
    assert (places[ours] / "saved_model.pb").is_file()


def test_url_that_serves_another_file_later_is_refused(hub: Hub, tmp_path: Path) -> None:
    open_encoder(f"tfhub:{hub.url}{MODEL}")
    assert not list((tmp_path / "cache" / "downloads").rglob("1"))  # the archive is not kept
    shutil.rmtree(tmp_path / "cache" / "tfhub")
    open_encoder(f"tfhub:{hub.url}{MODEL}")
    shutil.rmtree(tmp_path / "cache" / "tfhub")
    hub.archives[MODEL] = tar_of(**{"saved_model.pb": b"another"})
    with pytest.raises(MissingError, match="is another file than it was"):
        open_encoder(f"tfhub:{hub.url}{MODEL}")


@pytest.mark.parametrize("place", ["ftp://127.0.0.1/model", "file:///etc/passwd"])
def test_redirects_to_other_protocols_are_not_followed(hub: Hub, place: str) -> None:
    hub.redirects[MODEL] = place
    with pytest.raises(MissingError, match="cannot be downloaded"):
        open_encoder(f"tfhub:{hub.url}{MODEL}")


def test_leftovers_of_a_killed_process_are_removed(archive: Path, tmp_path: Path) -> None:
    open_encoder(f"tfhub:{archive}")
    (name,) = cached(tmp_path)
    cache = tmp_path / "cache" / "tfhub"
    (cache / name / "saved_model.pb").unlink()
    (cache / f".{name}.01234567.tmp" / "variables").mkdir(parents=True)
    open_encoder(f"tfhub:{archive}")
    assert cached(tmp_path) == [name]


def test_unwritable_cache_is_reported_by_tfhub(
    hub: Hub, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TFHUB_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(MissingError, match=f"cannot be unpacked to {re.escape(str(tmp_path / 'file'))}"):
        open_encoder(f"tfhub:{hub.url}{MODEL}")
    with pytest.raises(EncoderError, match=r"tf2.tar.gz cannot be unpacked: "):
        open_encoder(f"tfhub:{archive}")


def tar_of(**files: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def tar_with(kind: bytes) -> bytes:
    """A link or a device for the graph."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        info = tarfile.TarInfo("saved_model.pb")
        info.type, info.linkname = kind, "/etc/hostname"
        tar.addfile(info)
    return buffer.getvalue()


def between_two_files(archive: bytes) -> bytes:
    """The archive without its last file: a tar that breaks off between two files looks whole, but for gzip."""
    plain = gzip.decompress(archive)
    with tarfile.open(fileobj=io.BytesIO(plain)) as tar:
        last = tar.getmembers()[-1].offset
    return gzip.compress(plain[:last])[:-8]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda whole: whole[: len(whole) // 2], "ended before|unexpected end|EOF"),
        (between_two_files, "ended before"),
        (lambda whole: whole[:-8] + bytes(4) + whole[-4:], "CRC check failed"),
        (lambda _whole: b"<html>Please sign in</html>", "Not a gzipped file"),
        (lambda _whole: gzip.compress(b"no tar at all" * 100), "ReadError"),
        (lambda _whole: gzip.compress(b""), "ReadError"),
        (lambda _whole: tar_of(**{"README.md": b"hello"}), "holds no saved_model.pb"),
        (lambda _whole: tar_of(**{"../../evil": b"x"}), "leads out of its folder: '../../evil'"),
        (lambda _whole: tar_of(**{"/evil": b"x"}), "out of its folder: '/evil'"),
        (lambda _whole: tar_of(**{"a\\b": b"x"}), "out of its folder"),
        (lambda _whole: tar_of(**{"saved_model.pb": b"x", "./saved_model.pb": b"y"}), "holds './saved_model.pb' twice"),
        (lambda _whole: tar_with(tarfile.SYMTYPE), "neither a file nor a folder"),
        (lambda _whole: tar_with(tarfile.LNKTYPE), "neither a file nor a folder"),
        (lambda _whole: tar_with(tarfile.CHRTYPE), "neither a file nor a folder"),
        (lambda _whole: tar_with(tarfile.FIFOTYPE), "neither a file nor a folder"),
    ],
)
def test_damaged_or_hostile_archive_is_refused_and_not_kept(
    hub: Hub, tmp_path: Path, spoil: Callable[[bytes], bytes], message: str
) -> None:
    whole = hub.archives[MODEL]
    hub.archives[MODEL] = spoil(whole)
    file = tmp_path / "spoilt.tar.gz"
    file.write_bytes(hub.archives[MODEL])
    with pytest.raises(MissingError, match=f"{hub.url}{MODEL} is no archive of a model: .*({message}).*FILE.tar.gz"):
        open_encoder(f"tfhub:{hub.url}{MODEL}")
    with pytest.raises(EncoderError, match=f"spoilt.tar.gz cannot be unpacked: .*({message})"):
        open_encoder(f"tfhub:{file}")
    assert cached(tmp_path) == []
    assert not list(tmp_path.rglob("evil"))
    hub.archives[MODEL] = whole
    open_encoder(f"tfhub:{hub.url}{MODEL}")


@pytest.mark.parametrize(
    ("module", "limit", "value", "message"),
    [
        (tfhub_encoder, "SAVED_MODEL_BYTES", 10_000, "more than 10,000 bytes"),
        (archives, "ARCHIVE_MEMBERS", 3, "more than 3 members"),
    ],
)
def test_archive_with_too_many_bytes_or_files_is_refused(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: object, limit: str, value: int, message: str
) -> None:
    monkeypatch.setattr(module, limit, value)
    with pytest.raises(EncoderError, match=message):
        open_encoder(f"tfhub:{archive}")
    assert cached(tmp_path) == []


def test_archive_that_grows_a_hundredfold_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tfhub_encoder, "SAVED_MODEL_FREE", 1_000_000)
    file = tmp_path / "zeros.tar.gz"
    file.write_bytes(tar_of(**{"saved_model.pb": bytes(30_000_000)}))
    assert file.stat().st_size * 100 < 30_000_000
    with pytest.raises(EncoderError, match=r"unpacks to more than [\d,]+ bytes"):
        open_encoder(f"tfhub:{file}")
    assert cached(tmp_path) == []


@pytest.mark.parametrize("status", [403, 404, 500, 503])
def test_http_errors_raise_missing_errors(hub: Hub, tmp_path: Path, status: int) -> None:
    hub.status = status
    with pytest.raises(MissingError, match=f"cannot be downloaded: .*HTTP Error {status}.*check the address"):
        open_encoder(f"tfhub:{hub.url}{MODEL}")
    assert cached(tmp_path) == []


def test_interrupted_download_is_reported(hub: Hub, tmp_path: Path) -> None:
    hub.content_length = len(hub.archives[MODEL]) + 100
    hub.archives[MODEL] = hub.archives[MODEL][:-20]
    with pytest.raises(MissingError, match="cannot be downloaded"):
        open_encoder(f"tfhub:{hub.url}{MODEL}")
    assert cached(tmp_path) == []


def test_download_gives_up_on_a_server_that_never_answers(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tfhub_encoder, "_TIMEOUT", 0.2)
    hub.silent = True
    start = time.monotonic()
    with pytest.raises(MissingError, match="timed out"):
        open_encoder(f"tfhub:{hub.url}{MODEL}")
    assert time.monotonic() - start < 20


def test_refused_connection_is_reported() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(MissingError, match="refused"):
            open_encoder(f"tfhub:http://127.0.0.1:{taken.getsockname()[1]}{MODEL}")


@pytest.mark.parametrize("url", ["http://", "http://[bad/x", "http://exa mple/x", "http://127.0.0.1:99999/x"])
def test_invalid_urls_are_reported(url: str) -> None:
    with pytest.raises(MissingError, match=rf"{re.escape(url)} cannot be downloaded: .*check the address"):
        open_encoder(f"tfhub:{url}")


def test_threads_that_open_one_url_download_it_once(hub: Hub) -> None:
    with ThreadPoolExecutor(3) as pool:
        encoders = list(pool.map(lambda _: open_encoder(f"tfhub:{hub.url}{MODEL}"), range(3)))
    assert len({encoder.spec.key for encoder in encoders}) == 1
    assert len(hub.seen) == 1


def test_cache_in_a_bucket_is_not_used(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFHUB_CACHE_DIR", "gs://bucket")
    open_encoder(f"tfhub:{hub.url}{MODEL}")
    assert len(cached(tmp_path)) == 1


def test_archive_is_unpacked_once(model: Path, archive: Path, tmp_path: Path) -> None:
    first = open_encoder(f"tfhub:{archive}")
    assert first.spec.key == open_encoder(f"tfhub:{model}").spec.key
    (folder,) = (tmp_path / "cache" / "tfhub" / name for name in cached(tmp_path))
    before = (folder / "saved_model.pb").stat().st_ino
    open_encoder(f"tfhub:{archive}")
    assert (folder / "saved_model.pb").stat().st_ino == before


def test_damaged_download_names_the_folder_to_remove(hub: Hub, tmp_path: Path) -> None:
    open_encoder(f"tfhub:{hub.url}{MODEL}")
    (folder,) = (tmp_path / "cache" / "tfhub" / name for name in cached(tmp_path))
    (folder / "variables" / "variables.index").write_bytes(b"")
    with pytest.raises(EncoderError, match=rf"cannot be opened from {re.escape(str(folder))}: .* remove the folder"):
        open_encoder(f"tfhub:{hub.url}{MODEL}")


def test_missing_tensorflow_names_the_extra(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name == "tensorflow" or name.startswith("tensorflow.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(MissingError, match=r"pip install 'ensembed\[tfhub\]'"):
        open_encoder(f"tfhub:{hub.url}{MODEL}")


def test_package_tensorflow_hub_is_not_needed(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("tensorflow_hub", "tf_keras", "pkg_resources"):
        monkeypatch.setitem(sys.modules, name, None)
    open_encoder(f"tfhub:{hub.url}{MODEL}")
