"""Encoders: what turns sentences into vectors, and how they are named.

Here belong the contract of an encoder (`base`), names and what they open (`names`), whether an encoder is the one that
was saved (`identity`), and every kind of encoder, one file `KIND_encoder.py` or folder each, found by its name. This
room imports `numerics`, `fetch`, `corpora`, `support` and `errors`.

A name is a short name of the catalogue (`minilm`) or a scheme and a location (`st:BAAI/bge-small-en-v1.5`,
`onnx:models/bge`), with options behind a question mark: `minilm?max_length=64`, `st:intfloat/e5-small?prefix=query: `.
`prefix`, `truncate_dim` and `normalize` are options of every encoder.
"""

from __future__ import annotations

from ensembed.encoders.base import Encoder, EncoderSpec
from ensembed.encoders.demo_encoder import DemoEncoder
from ensembed.encoders.names import EncoderLike, Request, at_least, flag, one_of, open_encoder
from ensembed.encoders.wrappers import AdjustedEncoder, ObjectEncoder

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
