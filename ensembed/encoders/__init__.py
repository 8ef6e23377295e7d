"""Encoders: what turns sentences into vectors, and how they are named.

Here belong the contract of an encoder (`base`), names (`names`), what a name needs consent for (`consent`), whether an
encoder is the one that was saved (`identity`), and every kind of encoder, one file `KIND_encoder.py` or folder each,
which `kinds` finds by its name. This room imports `numerics`, `fetch`, `corpora`, `support` and `errors`.

A name is a short name of the catalogue (`minilm`) or a scheme and a location (`st:BAAI/bge-small-en-v1.5`,
`onnx:models/bge`), with options behind a question mark: `minilm?max_length=64`, `st:intfloat/e5-small?prefix=query: `.
`prefix`, `truncate_dim` and `normalize` are options of every encoder.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from ensembed.encoders.base import Encoder, EncoderSpec, SupportsEncode
from ensembed.encoders.demo_encoder import DemoEncoder
from ensembed.encoders.kinds import open_request
from ensembed.encoders.names import Request, at_least, flag, one_of, parse_name
from ensembed.encoders.wrappers import AdjustedEncoder, ObjectEncoder
from ensembed.errors import InputError
from ensembed.support.progress import Progress, silent

EncoderLike: TypeAlias = str | Encoder | SupportsEncode

__all__ = [
    "AdjustedEncoder",
    "DemoEncoder",
    "Encoder",
    "EncoderLike",
    "EncoderSpec",
    "ObjectEncoder",
    "Request",
    "at_least",
    "flag",
    "one_of",
    "open_encoder",
]


def open_encoder(
    source: EncoderLike, *, threads: int | None = None, progress: Progress = silent, pinned: str | None = None
) -> Encoder:
    """Return the encoder of that name, or the object as an encoder.

    Args:
        source: a name, an encoder, or any object that has `encode`.
        threads: cores to use; None leaves it to the encoder.
        progress: receives long work, such as the conversion of a file of word vectors.
        pinned: the revision at which to fetch what is fetched by name; None for the latest.

    Raises:
        UnknownEncoderError: there is no encoder of that name.
        MissingError: its files have to be pulled, or its package installed, first.
    """
    if isinstance(source, Encoder):
        return source
    if isinstance(source, str):
        request = replace(parse_name(source), threads=threads, progress=progress, pinned=pinned)
        changes, request = request.take(prefix=str, truncate_dim=int, normalize=flag)
        encoder = open_request(request)
        return AdjustedEncoder(encoder, **changes) if changes else encoder
    if isinstance(source, SupportsEncode):
        return ObjectEncoder(source)
    raise InputError(f"an encoder is a name or an object with `encode`, not {type(source).__name__}")
