"""Whether an encoder is the one that was saved: the same settings and the same vectors of two probe sentences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ensembed.encoders.base import Encoder, EncoderSpec, FloatArray

PROBES = ["A man is playing a guitar on the stage.", "Stock prices fell sharply after the report."]
"""The sentences whose vectors are saved with a model or an index: part of both formats."""

PROBED = "probed-"
"""The prefix of the revision of a server, which is a hash of the vectors that one machine received first."""

# The largest distance of probe vectors from the saved ones, as a part of their length: machines round differently.
_TOLERANCE = 0.2


def same_settings(spec: EncoderSpec, saved: EncoderSpec) -> bool:
    """Return whether all that pins the numbers is the same; probed revisions are, since they hold a machine's noise."""
    if saved.revision.startswith(PROBED) and spec.revision.startswith(PROBED) and spec.kind == saved.kind:
        spec = replace(spec, revision=saved.revision)
    return spec.key == saved.key


def difference(encoder: Encoder, saved: EncoderSpec, probes: FloatArray, *, settings: bool = True) -> str | None:
    """Return how an encoder differs from the one that was saved, for a person; None where it is the same.

    Args:
        encoder: the encoder, which encodes the probe sentences.
        saved: the spec that was saved.
        probes: the vectors [2, d] of `PROBES` that were saved.
        settings: compare the settings; False where a user replaces the encoder by one of their own.
    """
    if encoder.spec.dim != saved.dim:
        return f"gives {encoder.spec.dim} dimensions instead of {saved.dim}"
    if settings and not same_settings(encoder.spec, saved):
        return f"has changed: {_changes(saved, encoder.spec)}"
    lengths = np.linalg.norm(probes, axis=1) + np.finfo(np.float32).tiny  # a probe of unknown words is zero
    distance = (np.linalg.norm(encoder.encode(PROBES) - probes, axis=1) / lengths).max()
    if distance > _TOLERANCE:
        return f"is another encoder: its probe vectors are {distance:.0%} of their length away from the saved ones"
    return None


def _changes(saved: EncoderSpec, spec: EncoderSpec) -> str:
    """Return the settings that differ."""
    before, now = saved.to_json(), spec.to_json()
    before |= before.pop("extra")
    now |= now.pop("extra")
    keys = [key for key in dict.fromkeys([*before, *now]) if before.get(key) != now.get(key)]
    if len(keys) > 1 and "name" in keys:
        keys.remove("name")
    return ", ".join(f"{key} was {before.get(key)!r} and is {now.get(key)!r}" for key in keys)
