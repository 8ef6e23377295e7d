"""What is in `results/` is what the code makes of its findings, and holds no text that is not ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from ensembed.paper.experiments.dev_experiments import best_autoencoder
from ensembed.paper.experiments.run_experiments import AUTOENCODER
from ensembed.paper.findings import Findings
from ensembed.paper.tables.table_formats import table_files
from ensembed.sts import distinct_sentences, load_sts

FOLDER = Path(__file__).parents[2] / "results" / "reproduce"
FINDINGS = Findings.from_json((FOLDER / "findings.json").read_bytes())


def test_every_table_is_made_of_the_findings() -> None:
    made = table_files(FINDINGS)
    assert {path.name for path in (FOLDER / "tables").iterdir()} == set(made)
    for name, text in made.items():
        assert (FOLDER / "tables" / name).read_text() == text, name


def test_the_demo_trains_the_autoencoder_that_the_search_chose() -> None:
    assert best_autoencoder(FINDINGS.autoencoders) == AUTOENCODER


def test_stored_report_holds_no_sentence_of_the_data(sts_data: Path) -> None:
    assert all(one.sentences is None for one in (*FINDINGS.changes.better, *FINDINGS.changes.worse))
    page = (FOLDER / "report.html").read_text()
    sentences = [text for text in distinct_sentences([load_sts("sts14", sts_data)]) if len(text) > 30]
    assert len(sentences) > 1000
    assert not [text for text in sentences if text in page]


@pytest.mark.parametrize("figure", ["bars", "scatter", "spectrum", "dimensions", "sizes", "ablation", "likeness"])
def test_stored_report_has_every_requested_part(figure: str) -> None:
    page = (FOLDER / "report.html").read_text()
    shown = f'id="svg-{figure}' in page or f"svg-{figure}-" in page
    # Two encoders without one of them are no ensemble: Table 3 takes three.
    assert shown == (figure != "ablation" or len(FINDINGS.members) > 2)


def test_every_stored_figure_is_one_of_the_page() -> None:
    page = (FOLDER / "report.html").read_text()
    assert [path.stem for path in (FOLDER / "figures").iterdir() if f"svg-{path.stem}" not in page] == []
