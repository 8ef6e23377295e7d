"""An ensemble's members one after the other, side by side, and as the schedule chooses."""

from __future__ import annotations

from benchmarks.timing import Comparison, compare
from ensembed.encoders.catalog import require
from ensembed.encoders.pull import pull
from ensembed.methods import Concat
from ensembed.model import Ensemble, MetaEncoder
from ensembed.sts import read_stsb

ENCODERS = ("minilm", "use-lite", "wordllama")


def run(sentences: int = 2048) -> list[Comparison]:
    """The demo's ensemble on sentences of STS-B dev."""
    pull([*ENCODERS, "stsb"])
    pairs = read_stsb(require("stsb"), "dev").parts[0]
    texts = list(dict.fromkeys([*pairs.sentences1, *pairs.sentences2]))[:sentences]
    ensemble = Ensemble(ENCODERS)
    model = MetaEncoder(ensemble, Concat().build(ensemble.dims))
    model.encode(texts)  # lets the schedule try both ways before it is timed
    return [
        compare(
            f"conc({', '.join(ENCODERS)}) of {len(texts):,} sentences",
            lambda: model.encode(texts),
            "the members alone, one after the other",
            lambda: [encoder.encode(texts) for encoder in ensemble.encoders],
            "<= 1.03",
            repeats=3,
        )
    ]
