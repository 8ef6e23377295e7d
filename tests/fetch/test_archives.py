"""Archives that are damaged on purpose, read member by member."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from served_data import tarred, zipped

from ensembed.fetch import archives as archives_module
from ensembed.fetch.archives import ArchiveError, read_members


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_members_are_read_by_name(tmp_path: Path, pack: Callable[[dict[str, bytes]], bytes]) -> None:
    path = tmp_path / "archive"
    path.write_bytes(pack({"x/a": b"one", "a": b"two", "b": b"three"}))
    taken: dict[str, bytes] = {}
    reports: list[tuple[str, int, int | None]] = []
    read_members(
        path,
        ["b", "x/a"],
        lambda name, stream: taken.update({name: stream.read()}),
        progress=lambda *report: reports.append(report),
    )
    assert taken == {"x/a": b"one", "b": b"three"}
    size = path.stat().st_size
    assert reports[-1] == ("unpack archive", size, size)


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_a_flipped_byte_is_an_error_or_changes_nothing(
    tmp_path: Path, pack: Callable[[dict[str, bytes]], bytes]
) -> None:
    path = tmp_path / "archive"
    whole = pack({"a": b"some text, and more of it"})
    for place in range(len(whole)):
        data = bytearray(whole)
        data[place] ^= 0x55
        path.write_bytes(data)
        taken: list[bytes] = []
        try:
            read_members(path, ["a"], lambda _, stream: taken.append(stream.read()))  # noqa: B023 - called at once
        except ArchiveError:
            continue
        assert taken == [b"some text, and more of it"]


def test_zips_with_damage_links_duplicates_or_too_many_members_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.zip"
    taken: list[bytes] = []

    def read(wanted: str = "a") -> None:
        read_members(path, [wanted], lambda _, stream: taken.append(stream.read()))

    data = bytearray(zipped({"a": b"some text " * 100}))
    data[40] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(ArchiveError, match="damaged, cut short or no archive"):
        read()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        link = zipfile.ZipInfo("a")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
        archive.writestr("b", "once")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("b", "twice")
    path.write_bytes(out.getvalue())
    with pytest.raises(ArchiveError, match="its member 'a' is no file"):
        read()
    with pytest.raises(ArchiveError, match="it holds 'b' twice"):
        read("b")
    monkeypatch.setattr(archives_module, "ARCHIVE_MEMBERS", 2)
    with pytest.raises(ArchiveError, match="more than 2 members"):
        read()
    assert taken == [b"once"]
