"""What the precision of training does to STS-B dev, on a GPU and on real views.

    python -m benchmarks.autoencoder_precision views.npz

`views.npz` holds what the demo's members say about STS-B train and dev. It is made where it is not there, which takes
the encoders; the training takes the GPU: they need not be on one machine.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ensembed.methods.autoencoder import Autoencoder

SETTING = Autoencoder(512, epochs=100, batch_size=1000, device="cuda", solver="batches")
CELLS = (("mse", 0), ("mae", 0), ("kld", 1), ("mse", 1), ("cos", 1), ("kld", 2), ("mse", 2), ("mae", 2), ("cos", 2))
PRECISIONS = ("float32", "tf32", "bfloat16")
# One training of a deep network may end elsewhere for a rounding; the mean over seeds tells what precision does.
SEEDS = range(8)


def make(path: Path) -> None:
    """Encode, and keep as float16: that is what fits through a narrow door, and no rounding of training is so fine."""
    from ensembed.corpora.corpus import ListCorpus
    from ensembed.models.ensemble import Ensemble
    from ensembed.sts.find import find_sts
    from ensembed.sts.protocol import distinct_sentences
    from ensembed.views import ViewStore
    from experiments.demo import ENCODERS

    dev = find_sts("stsb-dev")
    sentences = distinct_sentences([dev])
    members, store = Ensemble(ENCODERS).encoders, ViewStore(wait=600)
    training = store.embed_all(ListCorpus(distinct_sentences([find_sts("stsb-train")])), members)
    evaluation = store.embed_all(ListCorpus(sentences), members)
    row = {sentence: i for i, sentence in enumerate(sentences)}
    pairs = dev.parts[0]
    arrays: dict[str, Any] = {f"train{j}": np.asarray(view).astype(np.float16) for j, view in enumerate(training)}
    arrays |= {f"dev{j}": np.asarray(view).astype(np.float16) for j, view in enumerate(evaluation)}
    arrays["first"] = np.array([row[sentence] for sentence in pairs.sentences1])
    arrays["second"] = np.array([row[sentence] for sentence in pairs.sentences2])
    np.savez(path, gold=pairs.scores, **arrays)


def main(path: Path) -> None:
    """Print a row per cell: means over seeds of Pearson's r and Spearman's rho, x 100, in every precision."""
    if not path.exists():
        make(path)
    with np.load(path) as file:
        data = dict(file)
    for loss, layers in CELLS:
        cells = []
        for precision in PRECISIONS:
            # The names in the tuples above are plain strings to the type checker.
            method = replace(SETTING, loss=loss, hidden_layers=layers, precision=precision)  # type: ignore[arg-type] # names of the literal types
            scores = 100 * np.array([score(replace(method, seed=seed), data) for seed in SEEDS])
            (r, rho), deviation = scores.mean(axis=0), scores[:, 0].std(ddof=1)
            cells.append(f"{precision} {r:.2f}/{rho:.2f} (r ± {deviation:.2f})")
        print(f"{loss}, {layers} hidden layers: {', '.join(cells)}", flush=True)


def score(method: Autoencoder, data: dict[str, Any]) -> tuple[float, float]:
    """Pearson's r and Spearman's rho on STS-B dev."""
    from scipy.stats import pearsonr, spearmanr

    training, evaluation = ([data[f"{kind}{j}"].astype(np.float32) for j in range(3)] for kind in ("train", "dev"))
    Z = method.fit(training).transform(evaluation)
    Z /= np.linalg.norm(Z, axis=1, keepdims=True)
    cosines = (Z[data["first"]] * Z[data["second"]]).sum(axis=1)
    return pearsonr(cosines, data["gold"]).statistic, spearmanr(cosines, data["gold"]).statistic


if __name__ == "__main__":
    main(Path(sys.argv[1]))
