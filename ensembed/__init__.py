"""One better sentence embedding out of the encoders you already have, without labels.

>>> from ensembed import Ensemble
>>> from ensembed.methods import GCCA
>>> ensemble = Ensemble(["demo?dim=8&seed=1", "demo?dim=8&seed=2"])
>>> model = ensemble.fit(["a dog barks", "a cat sleeps", "the dog sleeps", "the cat barks"], GCCA(dim=3))
>>> model.similarity(["a dog"], ["the dog", "a cat"]).shape
(1, 2)
"""

from ensembed._version import __version__
from ensembed.corpus import ListCorpus, TextCorpus
from ensembed.encoders import ObjectEncoder, open_encoder
from ensembed.errors import EnsembedError
from ensembed.loading import load
from ensembed.model import Ensemble, MetaEncoder
from ensembed.views import ViewStore

__all__ = [
    "EnsembedError",
    "Ensemble",
    "ListCorpus",
    "MetaEncoder",
    "ObjectEncoder",
    "TextCorpus",
    "ViewStore",
    "__version__",
    "load",
    "open_encoder",
]
