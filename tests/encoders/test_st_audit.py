"""What an audit found in folders of sentence-transformers, by names that version 0.1 has, too.

Every test fails on it: those of code with sentence-transformers 5.7, since version 6 refuses such folders by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from make_st import (
    link_to_a_route,
    name_a_route_absolutely,
    name_a_route_of_a_route,
    name_a_route_outside,
    write_code,
    write_st,
)

from ensembed import open_encoder
from ensembed.errors import EnsembedError


@pytest.mark.parametrize(
    "change", [name_a_route_outside, name_a_route_absolutely, link_to_a_route, name_a_route_of_a_route]
)
def test_code_outside_of_the_folder_does_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None]
) -> None:
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    folder, marker = write_st(tmp_path / "model"), tmp_path / "ran"
    write_code(folder, marker)
    change(folder)
    with suppress(EnsembedError):
        open_encoder(f"st:{folder}")
    assert not marker.exists()


@pytest.mark.parametrize("file", ["modules.json", "config.json"])
def test_deeply_nested_json_is_refused_by_an_error_of_the_package(tmp_path: Path, file: str) -> None:
    folder = write_st(tmp_path / "model")
    (folder / file).write_text("[" * 10**5 + "]" * 10**5)
    with pytest.raises(EnsembedError):
        open_encoder(f"st:{folder}")
