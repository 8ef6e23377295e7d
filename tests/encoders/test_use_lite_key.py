"""The key of `use-lite:DIR`: that of the files which are read."""

from __future__ import annotations

from pathlib import Path

import pytest
from make_use_lite import tiny_constants, write_use_lite

from ensembed.encoders import open_encoder
from ensembed.errors import EncoderError, InputError


def key(folder: Path) -> str:
    return open_encoder(f"use-lite:{folder}?max_length=16").spec.key


def test_key_depends_only_on_the_files_that_are_read(tmp_path: Path) -> None:
    before = key(write_use_lite(tmp_path, tiny_constants()))
    (tmp_path / "README.md").write_text("# About")
    (tmp_path / "group1-shard3of2").write_bytes(b"of another model")
    assert key(tmp_path) == before
    for file in ("model.json", "vocab.json"):
        (tmp_path / file).write_text((tmp_path / file).read_text() + "\n")
        assert key(tmp_path) != before
        before = key(tmp_path)
    data = bytearray((tmp_path / "group1-shard2of2").read_bytes())
    data[-4] ^= 1
    (tmp_path / "group1-shard2of2").write_bytes(data)
    assert key(tmp_path) != before


@pytest.mark.parametrize("content", ["{", "{}", "3", '{"weightsManifest": [{}]}', '{"weightsManifest": 3}'])
def test_folder_without_a_model_is_refused(tmp_path: Path, content: str) -> None:
    with pytest.raises(InputError, match="absent is not a folder"):
        open_encoder(f"use-lite:{tmp_path / 'absent'}")
    with pytest.raises(EncoderError, match=r"model\.json cannot be read"):
        open_encoder(f"use-lite:{tmp_path}")
    write_use_lite(tmp_path, tiny_constants())
    (tmp_path / "model.json").write_text(content)
    with pytest.raises(EncoderError, match=r"model\.json is not"):
        open_encoder(f"use-lite:{tmp_path}")
