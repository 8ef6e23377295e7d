"""Where data sets are looked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ensembed.errors import AbsentDatasetError, DatasetError, MissingError
from ensembed.fetch.catalog import catalog, folder_of
from ensembed.sts import Dataset, Pairs
from ensembed.sts.datasets import PARTS
from ensembed.sts.find import find_available, find_sts, text_version


@pytest.fixture
def no_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without a data folder."""
    monkeypatch.delenv("ENSEMBED_DATA", raising=False)
    (tmp_path / "somewhere").mkdir()
    monkeypatch.chdir(tmp_path / "somewhere")


@pytest.mark.usefixtures("no_data")
def test_without_data_the_errors_say_how_to_get_it() -> None:
    with pytest.raises(MissingError, match="ensembed pull stsb"):
        find_sts("stsb-dev")
    with pytest.raises(DatasetError, match="ENSEMBED_DATA"):
        find_sts("sts12")


def test_missing_years_are_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("stsb/dev", "stsb/test", *(f"sts16/{part}" for part in PARTS["sts16"])):
        file = tmp_path / "sts" / f"{name}.tsv"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("1\ta\tb\n2\tc\td\n")
    with pytest.warns(RuntimeWarning) as caught:
        available = find_available(tmp_path)
    assert [dataset.name for dataset in available] == ["sts16", "stsb-test", "stsb-dev"]
    assert [str(warning.message)[:14] for warning in caught] == [f"without sts{year}:" for year in range(12, 16)]
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("no_data")
def test_the_pulled_copy_is_used_for_absent_but_not_for_damaged_data(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pulled = tmp_path / "pulled"
    pulled.mkdir()
    (pulled / "sts-dev.csv").write_text("g\tf\ty\ti\t1\tA\tb\ng\tf\ty\ti\t2\tc\td\n")
    monkeypatch.setattr("ensembed.sts.find.is_pulled", lambda _: True)
    monkeypatch.setattr("ensembed.sts.find.require", lambda _: pulled)
    data = tmp_path / "data"
    monkeypatch.setenv("ENSEMBED_DATA", str(data))
    assert len(find_sts("stsb-dev")) == 2, "the data folder is not there"
    own = data / "sts/stsb/dev.tsv"
    own.parent.mkdir(parents=True)
    assert len(find_sts("stsb-dev")) == 2, "the data folder has no STS-B"
    with pytest.raises(AbsentDatasetError, match="sts12 is not in"):
        find_sts("sts12")
    own.write_text("1\ta\tb\n2\tdamaged\n")
    with pytest.raises(DatasetError, match=r"dev\.tsv, line 2: 3 tab-separated columns"):
        find_sts("stsb-dev")
    own.write_bytes(b"\x1f\x8btorn")
    with pytest.raises(DatasetError, match=r"dev\.tsv is not a whole gzip file"):
        find_sts("stsb-dev")
    own.write_text("1\ta\tb\n2\tc\td\n3\te\tf\n")
    assert len(find_sts("stsb-dev")) == 3


@pytest.mark.real
@pytest.mark.usefixtures("no_data")
def test_pulled_stsb_is_found_without_data_and_beside_data_that_lacks_it(
    pulled: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert pulled("stsb") == folder_of(catalog()["stsb"])
    assert len(find_sts("stsb-dev")) == 1500
    monkeypatch.setenv("ENSEMBED_DATA", str(tmp_path))
    assert len(find_sts("stsb-test")) == 1379
    with pytest.raises(DatasetError):
        find_sts("stsb-test", layout="tok")


def test_the_text_version_is_named_once() -> None:
    pairs = Pairs("a", ("x", "y"), ("x", "z"), np.array([5.0, 1.0]))
    sets = [Dataset("a", (pairs,), layout=layout) for layout in ("tsv", "raw", "tok")]
    assert text_version(sets) == "raw, tokenised and lower-cased (SentEval's)"
