"""A fitted model in words: what `ensembed fit` prints."""

from __future__ import annotations

from typing import Any

from ensembed.methods import METHODS, Meta
from ensembed.methods.gcca import positive
from ensembed.models.ensemble import MetaEncoder
from ensembed.models.tuning import describe

# Values of a spectrum below this part of the largest are rounding.
_ROUNDING = 1e-12


def summary(model: MetaEncoder) -> list[list[str]]:
    """Return rows of (what, value) that say how a model was fitted and what it is."""
    meta = model.meta
    names = [encoder.spec.name for encoder in model.ensemble.encoders]
    rows = [["method", _method(meta)], *(["member", member] for member in _members(model))]
    if "weights_from" in meta.method:
        rows.append(["weights", _trust(names, meta.method)])
    if "tuned" in meta.method:
        rows.append(["tuned", describe(meta.method["tuned"])])
    trained = f"{meta.rows} sentences" if meta.rows else "nothing: it needs no training"
    rows += [["dim", str(meta.dim)], ["fitted on", trained]]
    if meta.spectrum is not None:
        if meta.method["name"] == "gcca":
            agree = positive(meta.spectrum)
            rows.append(["positive", f"{agree} of {meta.dim} dimensions: where the members agree, rho > 0"])
        rows.append(["spectrum", _spectrum(meta)])
    return rows


def spectrum(meta: Meta) -> list[float]:
    """Return the spectrum with six digits; an empty list where there is none."""
    return [] if meta.spectrum is None else [float(f"{value:.6g}") for value in meta.spectrum]


def _method(meta: Meta) -> str:
    """Return the method with the parameters that are not their defaults and that no other row shows."""
    chosen = [meta.method["name"]]
    for field in METHODS[meta.method["name"]].parameters():
        default = list(field.default) if isinstance(field.default, tuple) else field.default
        value = meta.method.get(field.name)
        if field.name not in ("dim", "weights", "whitened") and value not in (None, default):
            chosen.append(f"--{field.name.replace('_', '-')} {value}")
    return ", ".join(chosen)


def _members(model: MetaEncoder) -> list[str]:
    """Return every member with its dimension, its weight unless all are equal, and whether it is whitened."""
    facts, encoders = model.meta.method, model.ensemble.encoders
    weights = facts.get("weights", "equal")
    notes = [""] * len(encoders) if weights == "equal" else [f", weight {weight:.3g}" for weight in weights]
    for j in facts.get("whitened", ()):
        notes[j] += ", whitened"
    return [f"{encoder.spec.name} ({encoder.spec.dim}){note}" for encoder, note in zip(encoders, notes, strict=True)]


def _trust(names: list[str], facts: Any) -> str:  # noqa: ANN401 - facts of a method
    """Return where weights by reliability come from, and how sure they are."""
    if len(names) == 1:
        return "one member: there is nothing to weigh"
    best = names[facts["trusted"]]
    sure = f"first in {facts['sure']:.0%} of the bootstrap samples"
    return {
        "lead": f"by reliability, without labels: {best} leads, {sure}",
        "words": f"by reliability, without labels: not sure, some lead alike; {best} follows the words least, {sure}",
        "nothing": "all alike: no two members agree, and nothing else tells which of them to believe",
    }[facts["decided"]]


def _spectrum(meta: Meta) -> str:
    """Return what some of the dimensions are worth, from the first to the last; rounding noise is 0."""
    values = spectrum(meta)
    places = sorted({round(i * (len(values) - 1) / 7) for i in range(8)})
    noise = _ROUNDING * max(abs(value) for value in values)
    shown = " ".join(f"{values[i] if abs(values[i]) > noise else 0:.4g}" for i in places)
    which = "each dimension" if len(places) == len(values) else f"dimensions {', '.join(str(i + 1) for i in places)}"
    return f"{METHODS[meta.method['name']].spectrum_of} of {which}: {shown}"
