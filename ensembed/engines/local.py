"""The engine that is always there: this process."""

from __future__ import annotations

from collections.abc import Sequence

from ensembed.corpora.corpus import Corpus
from ensembed.encoders.base import Encoder
from ensembed.engines.base import Stage
from ensembed.methods.passes import LocalPasses
from ensembed.support.progress import Progress, silent
from ensembed.views import View, ViewStore


class Local(LocalPasses):
    """Encodes and fits on the cores of this machine: what `Ensemble.fit` does where no engine is named."""

    @property
    def stages(self) -> Sequence[Stage]:
        """Nothing: it keeps no account."""
        return ()

    def embed_all(
        self,
        store: ViewStore,
        corpus: Corpus,
        encoders: Sequence[Encoder],
        *,
        verify: bool = False,
        progress: Progress = silent,
    ) -> list[View]:
        """Fill the views of several encoders, one after the other or side by side."""
        return store.embed_all(corpus, encoders, verify=verify, progress=progress)
