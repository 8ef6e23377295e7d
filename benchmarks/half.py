"""Views kept as float16: what halving the disk costs in scores, chosen on STS-B dev."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.texts import stsb
from benchmarks.timing import Section, Table
from ensembed.fetch.fetcher import pull
from ensembed.methods import GCCA, SVD, Auto, Method
from ensembed.models.ensemble import Ensemble, MetaEncoder
from ensembed.sts import evaluate
from ensembed.sts.find import find_sts

ENCODERS = ("minilm", "use-lite", "wordllama")


def run(sentences: int = 4096) -> Section:
    """Fit on the same views in both precisions, and score each fit on STS-B dev."""
    pull([*ENCODERS, "stsb"])
    ensemble = Ensemble(ENCODERS)
    texts = stsb(sentences)
    views = [encoder.encode(texts) for encoder in ensemble.encoders]
    halved: list[NDArray[Any]] = [view.astype(np.float16).astype(np.float32) for view in views]
    data = find_sts("stsb-dev")
    rows = []
    methods: dict[str, Method] = {"auto": Auto(), "svd, d = 512": SVD(dim=512), "gcca, d = 512": GCCA(dim=512)}
    for name, method in methods.items():
        scores = [
            100 * evaluate(MetaEncoder(ensemble, method.fit(given)).encode, data).score.pearson
            for given in (views, halved)
        ]
        rows.append([name, f"{scores[0]:.3f}", f"{scores[1]:.3f}", f"{scores[1] - scores[0]:+.3f}"])
    worst = max(float(np.abs(a - b).max() / np.abs(a).max()) for a, b in zip(views, halved, strict=True))
    return Section(
        "Views in float16",
        tables=[
            Table("STS-B dev, Pearson, of fits from stored views", ["method", "float32", "float16", "change"], rows)
        ],
        notes=[
            f"{', '.join(ENCODERS)}, fitted on {len(texts):,} sentences of STS-B; scored in float32.",
            f"The largest change of a number is {worst:.1e} of the largest number.",
        ],
    )
