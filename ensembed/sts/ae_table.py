"""`python -m ensembed.sts.ae_table`: the paper's search over the autoencoder's depth and loss (its Table 1, above).

Trains twelve autoencoders on the demo's ensemble and the unlabelled sentences of STS-B train, scores them on STS-B dev,
and writes `ae.md` and `ae.json`. No test set is looked at. The setting is a reduced one, for two cores: see
`main_table.REDUCED`. A cell that is done is kept until the table is written, so that an interruption loses one cell at
the most.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ensembed.corpus import ListCorpus
from ensembed.encoders.pull import pull
from ensembed.errors import EnsembedError
from ensembed.files import write_atomically
from ensembed.methods import GCCA, SVD
from ensembed.methods.autoencoder.method import Autoencoder, Loss
from ensembed.model import Ensemble
from ensembed.paths import cache_dir
from ensembed.progress import Progress, bars
from ensembed.provenance import provenance
from ensembed.sts import paper
from ensembed.sts.demo import CORPUS, ENCODERS
from ensembed.sts.experiments import Laboratory, Row
from ensembed.sts.find import find_sts, text_version
from ensembed.sts.main_table import DEV, REDUCED, TAUS
from ensembed.sts.protocol import Score, distinct_sentences
from ensembed.tables import markdown_table, text_table
from ensembed.views import ViewStore

LAYERS = (0, 1, 2)
LOSSES: tuple[Loss, ...] = ("mse", "mae", "kld", "cos")

# A learning rate that leaves the weights as they were drawn.
_NONE = 1e-20

# The paper's: 500 epochs of batches of 10,000 on some 302,000 sentences.
_PAPERS_STEPS = 500 * 31


@dataclass(frozen=True)
class Cell:
    """One autoencoder of the search.

    Attributes:
        score: on STS-B dev.
        seconds: that training took.
    """

    score: Score
    seconds: float

    def to_json(self) -> dict[str, float]:
        """Plain data."""
        return {**self.score.to_json(), "seconds": self.seconds}

    @classmethod
    def from_json(cls, facts: Mapping[str, float]) -> Cell:
        """The reverse of `to_json`."""
        return cls(Score(facts["pearson"], facts["spearman"]), facts["seconds"])


class Kept:
    """Cells that are done, in a file that is removed when the table is written.

    Args:
        path: the file; one that is damaged counts as empty.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._cells = {key: Cell.from_json(facts) for key, facts in json.loads(path.read_bytes()).items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            self._cells = {}

    def get(self, key: str) -> Cell | None:
        """The cell, if it is done."""
        return self._cells.get(key)

    def put(self, key: str, cell: Cell) -> None:
        """Keep a cell."""
        self._cells[key] = cell
        self._path.parent.mkdir(parents=True, exist_ok=True)
        facts = {key: cell.to_json() for key, cell in self._cells.items()}
        write_atomically(self._path, json.dumps(facts).encode())

    def remove(self) -> None:
        """Forget them all."""
        self._path.unlink(missing_ok=True)


@dataclass(frozen=True)
class AutoencoderTable:
    """Scores of autoencoders on STS-B dev, by depth and loss.

    Attributes:
        laboratory: members, views and STS-B dev.
        setting: what the cells share.
        cells: by hidden layers and loss.
        untrained: by hidden layers: what the first, random weights score, which is what training has to beat.
        others: what the autoencoders are compared with, on the same data.
    """

    laboratory: Laboratory
    setting: Autoencoder
    cells: Mapping[tuple[int, Loss], Cell]
    untrained: Mapping[int, Cell]
    others: tuple[Row, ...]

    @classmethod
    def search(cls, laboratory: Laboratory, setting: Autoencoder, kept: Kept, progress: Progress) -> AutoencoderTable:
        """Train and score every cell that is not kept."""
        dim = max(laboratory.ensemble.dims)

        def cell(method: Autoencoder) -> Cell:
            key = _key(method, laboratory)
            found = kept.get(key) or _train(method, laboratory, progress)
            kept.put(key, found)
            return found

        untrained, cells = {}, {}
        for layers in LAYERS:
            method = replace(setting, dim=dim, hidden_layers=layers)
            untrained[layers] = cell(replace(method, epochs=1, batch_size=10_000, learning_rate=_NONE))
            for loss in LOSSES:
                cells[layers, loss] = cell(replace(method, loss=loss))
        solved = replace(setting, dim=dim, hidden_layers=0, loss="mse", solver="moments")
        searched = [laboratory.meta(GCCA(dim, tau), f"tau={tau:g}, the best of {TAUS} on STS-B dev") for tau in TAUS]
        others = (
            *laboratory.singles(),
            laboratory.meta(SVD(dim)),
            max(searched, key=lambda row: row.scores[DEV].pearson),
            replace(
                laboratory.meta(solved), label="meta:ae solved", note="mse without hidden layers, from the moments"
            ),
        )
        return cls(laboratory, setting, cells, untrained, others)

    @property
    def best(self) -> tuple[int, Loss]:
        """Hidden layers and loss of the best cell by Pearson's r, as the paper chooses."""
        return max(self.cells, key=lambda cell: self.cells[cell].score.pearson)

    @property
    def steps(self) -> int:
        """Updates per cell."""
        return self.setting.epochs * -(-len(self.laboratory.training[0]) // self.setting.batch_size)

    def text(self) -> str:
        """For a terminal."""
        return "\n\n".join([text_table(*self._grid()), text_table(*self._others()), "\n".join(self._notes())])

    def markdown(self) -> str:
        """The tables and the notes, with provenance."""
        facts = ", ".join(f"{key} {value}" for key, value in provenance().items())
        notes = [f"- {note}" for note in (*self._notes(), f"Made with {facts}.")]
        grid, others = markdown_table(*self._grid()), markdown_table(*self._others())
        return "\n".join([grid, "", "On the same data:", "", others, "", *notes, ""])

    def to_json(self) -> dict[str, Any]:
        """Everything as data."""
        laboratory = self.laboratory
        view = laboratory.training[0].manifest
        (dev,) = laboratory.datasets
        return {
            "provenance": provenance(),
            "members": [encoder.spec.to_json() for encoder in laboratory.ensemble.encoders],
            "corpus": {"what": CORPUS, "sentences": view.rows, "key": view.corpus},
            "dataset": {"name": dev.name, "pairs": len(dev), "fingerprint": dev.fingerprint},
            "setting": self.setting.to_json(),
            "steps": self.steps,
            "cells": [
                {"hidden_layers": layers, "loss": loss, **cell.to_json()} for (layers, loss), cell in self.cells.items()
            ],
            "untrained": [{"hidden_layers": layers, **cell.to_json()} for layers, cell in self.untrained.items()],
            "best": {"hidden_layers": self.best[0], "loss": self.best[1]},
            "others": [
                {"label": row.label, "dim": row.dim, "note": row.note, **row.scores[DEV].to_json()}
                for row in self.others
            ],
        }

    def _grid(self) -> tuple[list[str], list[list[str]]]:
        ours = []
        for layers in LAYERS:
            scores = [self.untrained[layers].score, *(self.cells[layers, loss].score for loss in LOSSES)]
            ours.append([f"{layers} hidden layers", *map(str, scores)])
        printed = paper.table1_autoencoder()
        papers = []
        for layers in LAYERS:
            figures = [printed[str(layers)][loss] for loss in LOSSES]
            papers.append([f"paper, {layers}", "", *(f"{figure.pearson}/{figure.spearman}" for figure in figures)])
        return [DEV, "untrained", *LOSSES], [*ours, *papers]

    def _others(self) -> tuple[list[str], list[list[str]]]:
        return ["", "d", DEV], [[row.label, str(row.dim), str(row.scores[DEV])] for row in self.others]

    def _notes(self) -> list[str]:
        laboratory, setting = self.laboratory, self.setting
        members = ", ".join(encoder.spec.name for encoder in laboratory.ensemble.encoders)
        layers, loss = self.best
        seconds = [cell.seconds for cell in self.cells.values()]
        network = (
            f"d = {max(laboratory.ensemble.dims)}, hidden layers as large, {setting.activation}; Adam, learning rate "
            f"{setting.learning_rate:g}; kld's temperature {setting.temperature:g}; seed {setting.seed}, one run."
        )
        reduced = (
            f"A reduced setting: {setting.epochs} epochs of batches of {setting.batch_size}, which are {self.steps} "
            f"steps, against the paper's {_PAPERS_STEPS} (500 epochs of batches of 10000 on some 302000 sentences). It "
            "was chosen by the time of a step, before any score was seen."
        )
        return [
            f"Pearson's r / Spearman's rho, x 100, on STS-B dev. Text: {text_version(laboratory.datasets)}.",
            f"Members: {members}. Trained without labels on {len(laboratory.training[0])} sentences: {CORPUS}.",
            network,
            reduced,
            f"Training took {min(seconds):.0f} to {max(seconds):.0f} s per cell, {sum(seconds):.0f} s in all.",
            f"The best: {loss}, hidden layers: {layers}. It is the best of twelve on the data that is shown.",
            "untrained: the weights as they are drawn, random projections of the members as they are.",
            *(f"{row.label}: {row.note}." for row in self.others if row.note),
            f"The paper's figures are of other members and another corpus: {paper.CITATION}, Table 1.",
        ]


def _train(method: Autoencoder, laboratory: Laboratory, progress: Progress) -> Cell:
    name = f"{method.loss}, {method.hidden_layers} hidden layers"

    def report(label: str, done: int, total: int | None, /) -> None:
        progress(label.replace("train", name, 1), done, total)

    start = time.perf_counter()
    meta = method.fit(laboratory.training, progress=report)
    seconds = time.perf_counter() - start
    return Cell(laboratory.score(meta.transform(list(laboratory.evaluation)))[DEV], round(seconds, 1))


def _key(method: Autoencoder, laboratory: Laboratory) -> str:
    """Of everything that changes a cell."""
    members = [encoder.spec.key for encoder in laboratory.ensemble.encoders]
    fingerprints = [dataset.fingerprint for dataset in laboratory.datasets]
    facts = [method.to_json(), laboratory.training[0].manifest.corpus, members, fingerprints, provenance()["torch"]]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def main(out: Path = Path("results"), setting: Autoencoder = REDUCED) -> None:
    """Print the table and write `ae.md` and `ae.json`."""
    kept = Kept(cache_dir() / "ae-table.json")
    with bars() as progress:
        pull([*ENCODERS, "stsb"], progress=progress)
        corpus = ListCorpus(distinct_sentences([find_sts("stsb-train")]))
        laboratory = Laboratory.prepare(
            Ensemble(ENCODERS), corpus, [find_sts(DEV)], store=ViewStore(wait=600), progress=progress
        )
        table = AutoencoderTable.search(laboratory, setting, kept, progress)
    print(table.text())
    out.mkdir(exist_ok=True)
    command = "`python -m ensembed.sts.ae_table`"
    head = f"# The autoencoder's depth and loss\n\nPrinted and written by {command}.\n\n"
    page, data = out / "ae.md", out / "ae.json"
    write_atomically(page, (head + table.markdown()).encode())
    write_atomically(data, (json.dumps(table.to_json(), indent=1, allow_nan=False) + "\n").encode())
    kept.remove()
    print(f"\nwritten: {page}, {data}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted: the cells that are done are kept, run the same command to go on")
    except EnsembedError as error:
        sys.exit(f"error: {error}")
