"""A fitted model in words: what `ensembed fit` prints."""

from __future__ import annotations

from ensembed.methods import METHODS, Meta
from ensembed.methods.gcca import positive
from ensembed.models.ensemble import MetaEncoder
from ensembed.models.tuning import describe

# Values of a spectrum below this part of the largest are rounding.
_ROUNDING = 1e-12
# How weights by reliability were decided on.
_TRUST = {
    "lead": "by reliability, without labels: {best} leads, first in {sure} of the bootstrap samples",
    "words": "by reliability, without labels: several lead equally; {best} depends least on shared words, "
    "first in {sure} of the bootstrap samples",
    "nothing": "equal: no two members agree, so none can be preferred",
}


def summary(model: MetaEncoder) -> list[list[str]]:
    """Return rows of (what, value) that say how a model was fitted and what it is."""
    meta, facts, encoders = model.meta, model.meta.method, model.ensemble.encoders
    # The parameters that are not their defaults and that no other row shows.
    chosen = [facts["name"]]
    for field in METHODS[facts["name"]].parameters():
        default = list(field.default) if isinstance(field.default, tuple) else field.default
        value = facts.get(field.name)
        if field.name not in ("dim", "weights", "whitened") and value not in (None, default):
            chosen.append(f"--{field.name.replace('_', '-')} {value}")
    rows = [["method", ", ".join(chosen)]]
    weights = facts.get("weights", "equal")
    for j, encoder in enumerate(encoders):
        weight = "" if weights == "equal" else f", weight {weights[j]:.3g}"
        whitened = ", whitened" if j in facts.get("whitened", ()) else ""
        rows.append(["member", f"{encoder.spec.name} ({encoder.spec.dim}){weight}{whitened}"])
    if "weights_from" in facts:
        best = encoders[facts["trusted"]].spec.name
        trust = _TRUST[facts["decided"]].format(best=best, sure=f"{facts['sure']:.0%}")
        rows.append(["weights", trust if len(encoders) > 1 else "one member: there is nothing to weigh"])
    if "tuned" in facts:
        rows.append(["tuned", describe(facts["tuned"])])
    trained = f"{meta.rows} sentences" if meta.rows else "nothing: it needs no training"
    rows += [["dim", str(meta.dim)], ["fitted on", trained]]
    if meta.spectrum is not None:
        if METHODS[facts["name"]].signed_spectrum:
            agree = positive(meta.spectrum)
            rows.append(["positive", f"{agree} of {meta.dim} dimensions: where the members agree, rho > 0"])
        rows.append(["spectrum", _spectrum(meta)])
    return rows


def spectrum(meta: Meta) -> list[float]:
    """Return the spectrum with six digits; an empty list where there is none."""
    return [] if meta.spectrum is None else [float(f"{value:.6g}") for value in meta.spectrum]


def _spectrum(meta: Meta) -> str:
    """Return what some of the dimensions are worth, from the first to the last; rounding noise is 0."""
    values = spectrum(meta)
    places = sorted({round(i * (len(values) - 1) / 7) for i in range(8)})
    noise = _ROUNDING * max(abs(value) for value in values)
    shown = " ".join(f"{values[i] if abs(values[i]) > noise else 0:.4g}" for i in places)
    which = "each dimension" if len(places) == len(values) else f"dimensions {', '.join(str(i + 1) for i in places)}"
    return f"{METHODS[meta.method['name']].spectrum_of} of {which}: {shown}"
