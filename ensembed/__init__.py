"""One better sentence embedding out of the encoders you already have, without labels.

>>> from ensembed import Ensemble
>>> from ensembed.methods import GCCA
>>> ensemble = Ensemble(["demo?dim=8&seed=1", "demo?dim=8&seed=2"])
>>> model = ensemble.fit(["a dog barks", "a cat sleeps", "the dog sleeps", "the cat barks"], GCCA(dim=3))
>>> model.similarity(["a dog"], ["the dog", "a cat"]).shape
(1, 2)
"""

from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from ensembed.support.version import __version__

if TYPE_CHECKING:
    from ensembed.corpora.corpus import ListCorpus, TextCorpus
    from ensembed.encoders import ObjectEncoder, open_encoder
    from ensembed.errors import EnsembedError
    from ensembed.models.ensemble import Ensemble, MetaEncoder
    from ensembed.models.opening import load
    from ensembed.support.machine import limit_threads
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
    "limit_threads",
    "load",
    "open_encoder",
]

# Where a name is, for its first use: numpy and scipy take longer to load than everything else here together, and a
# command line that only prints its help needs neither.
_PLACES = {
    "EnsembedError": "errors",
    "Ensemble": "models.ensemble",
    "ListCorpus": "corpora.corpus",
    "MetaEncoder": "models.ensemble",
    "ObjectEncoder": "encoders",
    "TextCorpus": "corpora.corpus",
    "ViewStore": "views",
    "limit_threads": "support.machine",
    "load": "models.opening",
    "open_encoder": "encoders",
}
# Names that are looked for here and belong to a room.
_ELSEWHERE = {
    **dict.fromkeys(("Auto", "Autoencoder", "Average", "Concat", "GCCA", "SVD", "UpProjection"), "methods"),
    "Index": "search",
    **dict.fromkeys(("find_clusters", "find_duplicates"), "search.groups"),
    "to_sentence_transformer": "integrations.sentence_transformers",
}
# Hidden from type checkers, which would take any name for one that is there.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name in _PLACES:
            value = getattr(import_module(f"ensembed.{_PLACES[name]}"), name)
            globals()[name] = value
            return value
        if not name.startswith("_") and find_spec(f"ensembed.{name}") is not None:
            return import_module(f"ensembed.{name}")
        way = f"; write from ensembed.{_ELSEWHERE[name]} import {name}" if name in _ELSEWHERE else ""
        raise AttributeError(f"module 'ensembed' has no attribute {name!r}{way}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *_PLACES, *(module.name for module in iter_modules(__path__))})
