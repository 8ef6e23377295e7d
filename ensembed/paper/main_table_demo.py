"""The demo: the paper's main table on encoders that the package registries give, beside the paper's own figures.

Pulls the encoders and STS-B, fits the paper's methods and `Auto`, which is this library's own, on the unlabelled
sentences of STS-B train, and scores members and meta-embeddings on STS-B and, where the data is there, on STS12-16.
GCCA's tau is chosen on STS-B dev, as in the paper, and so were the autoencoder's depth and loss, by `ensembed
reproduce`, which does all the rest; nothing is chosen on a test set, and Auto's weights are found without a score.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

from ensembed.fetch.fetcher import pull
from ensembed.models.ensemble import Ensemble
from ensembed.paper.experiments.dev_experiments import Training
from ensembed.paper.experiments.run_experiments import Plan, run_experiments
from ensembed.paper.findings import Findings
from ensembed.paper.laboratory import Laboratory
from ensembed.paper.named_corpora import STSB_TRAIN, open_corpora
from ensembed.paper.notebook import Notebook
from ensembed.sts.find import find_available
from ensembed.support.machine import cache_dir
from ensembed.support.progress import Progress, silent
from ensembed.views import ViewStore


def run_demo(encoders: Sequence[str], command: str, progress: Progress = silent) -> Findings:
    """Return the findings of the main table; without torch, those without the autoencoder.

    Args:
        encoders: names of the catalogue.
        command: the line that makes them again, for the pages.
        progress: receives what is pulled, encoded and fitted.
    """
    pull([*encoders, "stsb"], progress=progress)
    [corpus] = open_corpora([STSB_TRAIN])
    # The light core cannot read and write records. Vectors are kept all the same: encoding is what takes time.
    records = cache_dir() / "reproduce" if find_spec("pydantic") is not None else None
    laboratory = Laboratory.prepare(
        Ensemble(encoders),
        {corpus.name: corpus.corpus},
        find_available(),
        store=ViewStore(wait=600),
        notebook=Notebook(records),
        progress=progress,
    )
    training: Training | None = "reduced" if find_spec("torch") is not None else None
    return run_experiments(laboratory, Plan(command, training=training, main_only=True), [corpus.what])
