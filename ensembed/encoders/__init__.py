"""Encoders, which turn sentences into vectors, and their names. May import `numerics`, `fetch`, `corpora` and below.

A name is a short name of the catalogue (`minilm`) or `SCHEME:LOCATION` (`onnx:models/bge`), with options after a
question mark: `minilm?max_length=64`. `prefix`, `truncate_dim` and `normalize` are options of every encoder.
"""

from __future__ import annotations

from ensembed.encoders.base import Encoder, EncoderSpec
from ensembed.encoders.demo_encoder import DemoEncoder
from ensembed.encoders.names_and_consent import EncoderLike, Request, at_least, flag, one_of, open_encoder
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
