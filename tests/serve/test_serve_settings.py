"""The settings and keys of a server."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from ensembed.cli.serve import serve
from ensembed.errors import InputError
from ensembed.serve import Settings
from ensembed.serve import limits as limits_module
from ensembed.serve.access import read_keys


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_items": 0},
        {"max_items": 1.5},
        {"max_items": True},
        {"wait_ms": -1},
        {"wait_ms": float("nan")},
        {"request_seconds": 0},
        {"request_seconds": float("inf")},
        {"cache_bytes": -1},
        {"keys": "one"},
        {"hosts": ("",)},
    ],
)
def test_invalid_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        Settings(**wrong)


def test_keys_are_read_from_a_file_and_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENSEMBED_API_KEYS", "from-the-env, another-one from-the-file")
    file = tmp_path / "keys"
    file.write_text("# ours\nfrom-the-file\n\n  spaced-out  \n")
    assert read_keys(file) == ("from-the-file", "spaced-out", "from-the-env", "another-one")
    monkeypatch.delenv("ENSEMBED_API_KEYS")
    assert read_keys(None) == ()


@pytest.mark.parametrize("text", ["", "# nothing\n", "short\n", "with space in it\n", "ünsichtbar\n"])
def test_invalid_keys_are_refused_and_not_shown(tmp_path: Path, text: str) -> None:
    file = tmp_path / "keys"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as told:
        read_keys(file)
    assert not text.strip() or text.startswith("#") or text.strip() not in str(told.value)
    with pytest.raises(InputError, match="cannot be read"):
        read_keys(tmp_path / "absent")


def test_a_file_of_keys_that_is_too_large_is_refused_and_not_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ensembed.serve.access.KEY_FILE_BYTES", 20)
    (tmp_path / "keys").write_text("12345678\n90123456789\n")
    with pytest.raises(InputError, match="more than 20 bytes"):
        read_keys(tmp_path / "keys")


def test_the_page_of_the_server_states_every_limit_as_it_is() -> None:
    """The table of docs/reference/server.md has the defaults of `Settings` and the names of the options."""
    page = Path("docs/reference/server.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (?:`(--[a-z-]+)`)? ?\| `(\w+)` \| ([\d,]+)", page, flags=re.MULTILINE)
    defaults = {setting.name: setting.default for setting in fields(Settings)}
    options = {str(option.name): option.opts[0] for option in serve.params}
    options |= {"max_body_bytes": options["max_body_mb"]}
    limits = {name for name in defaults if name.startswith(("max_", "held", "reply", "connections", "queue"))}
    limits |= {name for name in defaults if name.endswith("_seconds")}
    assert {name for _, name, _ in rows} == limits
    for option, name, default in rows:
        assert int(default.replace(",", "")) == defaults[name], name
        assert option == options.get(name, ""), name
    assert limits_module.OTHER_VALUES == 1000
    assert "a thousand keys and other values" in " ".join(page.split())
    assert f"A head may have {limits_module._HEAD_BYTES >> 10} KB." in page
    assert f"a reply of up to {limits_module._SMALL_REPLY >> 10} KB always" in page
    assert f"1 s more for every {Settings.least_rate // 1000} KB" in " ".join(page.split())
