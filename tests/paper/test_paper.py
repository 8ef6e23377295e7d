"""The tables that wait for their experiment, row by row as the paper prints them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from ensembed.paper import published as paper
from ensembed.paper.published import Printed


def printed(text: str) -> list[Printed]:
    """The figures of a row, as in `85.0/85.4 79.6/81.3`."""
    return [Printed(*map(float, figure.split("/"))) for figure in text.split()]


def test_table1_gcca_is_as_printed() -> None:
    assert list(paper.table1_gcca()) == ["0.01", "0.1", "1", "10", "100"]
    assert list(paper.table1_gcca().values()) == printed("84.2/84.1 84.8/84.7 85.5/85.7 85.5/86.1 84.9/85.9")


@pytest.mark.parametrize(
    ("layers", "row"),
    [
        ("0", "83.0/84.2 84.2/85.1 83.0/84.2 82.4/83.5"),
        ("1", "82.7/83.9 83.8/84.6 85.1/85.5 83.3/83.4"),
        ("2", "82.5/82.8 81.3/82.1 83.3/83.4 82.3/82.3"),
    ],
)
def test_table1_autoencoder_is_as_printed(layers: str, row: str) -> None:
    table = paper.table1_autoencoder()
    assert list(table) == ["0", "1", "2"]
    assert list(table[layers]) == ["mse", "mae", "kld", "cos"]
    assert list(table[layers].values()) == printed(row)


@pytest.mark.parametrize(
    ("method", "row"),
    [
        ("svd", "85.0/85.4 79.6/81.3 79.7/81.4 83.7/83.5"),
        ("gcca", "85.5/86.1 84.9/84.8 83.8/83.8 85.4/85.4"),
        ("ae", "85.1/85.5 76.5/80.3 82.5/83.5 28.7/41.0"),
    ],
)
def test_table3_is_as_printed(method: str, row: str) -> None:
    table = paper.table3()
    assert list(table) == ["svd", "gcca", "ae"]
    assert list(table[method]) == ["full", "without ParaNMT", "without USE", "without SBERT"]
    assert list(table[method].values()) == printed(row)


def test_published_tables_are_read_only() -> None:
    for table in (paper.table1_gcca(), paper.table1_autoencoder()["0"], paper.table3()["ae"]):
        assert isinstance(table, Mapping)
        with pytest.raises(TypeError):
            table["full"] = Printed(1.0, 1.0)  # type: ignore[index] # it is read only
