"""Optional libraries."""

from __future__ import annotations

from pathlib import Path

import pytest

from ensembed.errors import MissingError
from ensembed.support.extras import import_extra


def test_error_for_a_missing_library_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MissingError, match=r"needs no_such_library; .*pip install 'ensembed\[st\]'"):
        import_extra("no_such_library.part", "st", "encoder 'st:x'")
    (tmp_path / "half_a_library.py").write_text("import no_such_library")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(MissingError, match="half_a_library, which is here but lacks no_such_library"):
        import_extra("half_a_library", "st", "encoder 'st:x'")
