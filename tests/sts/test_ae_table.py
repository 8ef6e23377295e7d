"""The search over the autoencoder's depth and loss: small here, and as it stands in the repository."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from invented_sts import CORPUS, MEMBERS, dataset

from ensembed import Ensemble, ViewStore
from ensembed.methods import Autoencoder, Meta
from ensembed.methods.autoencoder.method import Loss
from ensembed.progress import silent
from ensembed.sts import ae_table, paper
from ensembed.sts.ae_table import LAYERS, LOSSES, AutoencoderTable, Cell, Kept, main
from ensembed.sts.experiments import Laboratory
from ensembed.sts.main_table import AUTOENCODER, DEV, REDUCED
from ensembed.sts.protocol import Score

ROOT = Path(__file__).parents[2]
TINY = replace(REDUCED, epochs=2, batch_size=100)
DATASET = dataset(DEV, (DEV,))


@pytest.fixture
def laboratory(tmp_path: Path) -> Laboratory:
    ensemble = Ensemble(MEMBERS)
    return Laboratory.prepare(ensemble, CORPUS, [DATASET], store=ViewStore(tmp_path))


def test_every_cell_is_what_its_autoencoder_scores(laboratory: Laboratory, tmp_path: Path) -> None:
    table = AutoencoderTable.search(laboratory, TINY, Kept(tmp_path / "kept.json"), silent)
    assert list(table.cells) == [(layers, loss) for layers in LAYERS for loss in LOSSES]
    assert table.steps == 2 * 3  # 250 sentences
    cells: list[tuple[int, Loss]] = [(0, "kld"), (1, "mse"), (2, "cos")]
    for layers, loss in cells:
        row = laboratory.meta(replace(TINY, dim=8, hidden_layers=layers, loss=loss))
        assert table.cells[layers, loss].score == row.scores[DEV]
    assert table.cells[table.best].score.pearson == max(cell.score.pearson for cell in table.cells.values())
    text = table.text()
    assert "6 steps, against the paper's 15500" in text
    assert f"{paper.table1_autoencoder()['1']['kld'].pearson}/85.5" in text
    assert [row.label for row in table.others][-3:] == ["meta:svd", "meta:gcca", "meta:ae solved"]
    data = json.loads(json.dumps(table.to_json(), allow_nan=False))
    assert (len(data["cells"]), data["corpus"]["key"]) == (12, CORPUS.key)
    assert "torch" in table.markdown()


def test_an_untrained_one_has_the_weights_that_were_drawn(laboratory: Laboratory, tmp_path: Path) -> None:
    table = AutoencoderTable.search(laboratory, TINY, Kept(tmp_path / "kept.json"), silent)
    one_step = replace(TINY, dim=8, hidden_layers=1, epochs=1, batch_size=1000, learning_rate=1e-7)
    assert table.untrained[1].score.pearson == pytest.approx(laboratory.meta(one_step).scores[DEV].pearson, abs=1e-4)


def test_cells_that_are_done_are_not_trained_again(
    laboratory: Laboratory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted = 0
    fit = Autoencoder.fit

    def stop_at_the_fifth(method: Autoencoder, views: Any, **options: Any) -> Meta:  # noqa: ANN401
        nonlocal fitted
        fitted += 1
        if fitted == 5:
            raise KeyboardInterrupt
        return fit(method, views, **options)

    monkeypatch.setattr(Autoencoder, "fit", stop_at_the_fifth)
    with pytest.raises(KeyboardInterrupt):
        AutoencoderTable.search(laboratory, TINY, Kept(tmp_path / "kept.json"), silent)
    resumed = AutoencoderTable.search(laboratory, TINY, Kept(tmp_path / "kept.json"), silent)
    assert fitted == 5 + 11  # four were done; one more is solved, not fitted
    assert all(cell.score.pearson for cell in resumed.cells.values())
    AutoencoderTable.search(laboratory, replace(TINY, seed=1), Kept(tmp_path / "kept.json"), silent)
    assert fitted == 16 + 15  # another setting, other cells


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"a": 1}', b'{"a": {"pearson": 1}}'])
def test_a_damaged_file_of_kept_cells_counts_as_empty(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "kept.json"
    path.write_bytes(damage)
    kept = Kept(path)
    assert kept.get("a") is None
    cell = Cell(Score(0.5, 0.25), 3.0)
    kept.put("a", cell)
    assert Kept(path).get("a") == cell
    Kept(path).remove()
    assert not path.exists()


def test_the_command_prints_and_writes_the_table(
    laboratory: Laboratory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ae_table, "pull", lambda *_arguments, **_options: None)
    monkeypatch.setattr(ae_table, "find_sts", lambda _name: DATASET)
    monkeypatch.setattr(Laboratory, "prepare", lambda *_arguments, **_options: laboratory)
    monkeypatch.setattr(ae_table, "Ensemble", lambda _encoders: None)
    main(tmp_path / "results", TINY)
    assert "paper, 2" in capsys.readouterr().out
    page = (tmp_path / "results" / "ae.md").read_text()
    assert "python -m ensembed.sts.ae_table" in page
    assert not (tmp_path / "cache" / "ae-table.json").exists()
    check_page(page, json.loads((tmp_path / "results" / "ae.json").read_text()))


def check_page(page: str, data: dict[str, Any]) -> None:
    for layers in LAYERS:
        cells = [cell for cell in data["cells"] if cell["hidden_layers"] == layers]
        scores = [f"{100 * cell['pearson']:.1f}/{100 * cell['spearman']:.1f}" for cell in cells]
        [line] = [line for line in page.splitlines() if line.startswith(f"| {layers} hidden layers |")]
        assert line.endswith(" | " + " | ".join(scores) + " |")


def test_the_page_in_the_repository_says_what_its_data_says() -> None:
    data = json.loads((ROOT / "results" / "ae.json").read_text())
    check_page((ROOT / "results" / "ae.md").read_text(), data)
    assert data["setting"] == json.loads(json.dumps(REDUCED.to_json()))


def test_the_demo_trains_the_best_of_the_search() -> None:
    best = json.loads((ROOT / "results" / "ae.json").read_text())["best"]
    assert (AUTOENCODER.hidden_layers, AUTOENCODER.loss) == (best["hidden_layers"], best["loss"])
    assert replace(REDUCED, **best) == AUTOENCODER
