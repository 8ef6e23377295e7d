"""A fitted model in words: what `ensembed fit` prints."""

from __future__ import annotations

from ensembed.methods import METHODS, Meta, Method
from ensembed.methods.gcca import positive
from ensembed.models.ensemble import MetaEncoder
from ensembed.models.tuning import describe

# Values of a spectrum below this part of the largest are rounding.
_ROUNDING = 1e-12
# How weights by reliability were decided on.
_TRUST = {
    "found": "by reliability, without labels",  # by a version that says no more, or in other words
    "lead": "by reliability, without labels: {best} leads ({sure} sure)",
    "words": "by reliability, without labels: {best} is nearly first and depends less on shared words ({sure} sure)",
    "level": "by reliability, without labels: the first ones are level; {best} is ahead by a little ({sure} sure)",
    "nothing": "equal: no two members agree, so none can be preferred",
    "too few": "equal, for the spread of the members' cosines: it takes {needed} distinct sentences to prefer one",
}


def summary(model: MetaEncoder) -> list[list[str]]:
    """Return rows of (what, value) that say how a model was fitted and what it is."""
    meta, facts, encoders = model.meta, model.meta.method, model.ensemble.encoders
    # The parameters that are not their defaults and that no other row shows.
    chosen = [facts["name"]]
    kind = METHODS.get(facts["name"], Method)  # which may be of a package that is not installed here
    for field in kind.parameters():
        default = list(field.default) if isinstance(field.default, tuple) else field.default
        value = facts.get(field.name)
        if field.name not in ("dim", "weights", "whitened") and value not in (None, default):
            chosen.append(f"{field.name}={value}")
    rows = [["method", ", ".join(chosen)]]
    weights = facts.get("weights", "equal")
    for j, encoder in enumerate(encoders):
        weight = "" if weights == "equal" else f", weight {weights[j]:.3g}"
        whitened = ", whitened" if j in facts.get("whitened", ()) else ""
        rows.append(["member", f"{encoder.spec.name} ({encoder.spec.dim}){weight}{whitened}"])
    if "weights_from" in facts:
        best, sure = encoders[facts.get("trusted", 0)].spec.name, f"{facts.get('sure', 0):.0%}"
        trust = _TRUST.get(facts.get("decided", ""), _TRUST["found"]).format(
            best=best, sure=sure, needed=facts.get("needed")
        )
        rows.append(["weights", trust if len(encoders) > 1 else "one member: there is nothing to weigh"])
    if "predicts" in facts and "recall_10" in facts:
        recalls = facts["recall_10"]
        rows.append(["predicts", ", ".join(facts["predicts"])])
        of_whole = f"of the whole model's ten nearest; the member alone {recalls['member']:.3f}"
        rows.append(["keeps", f"{recalls['cheap']:.3f} {of_whole}"])
    if "tuned" in facts:
        rows.append(["tuned", describe(facts["tuned"])])
    trained = (
        f"{meta.rows} sentences{model.corpus_name and f' of {model.corpus_name}'} (key {model.corpus[:8]})"
        if meta.rows
        else "nothing: it needs no training but for the leading directions"
        if meta.leading
        else "nothing: it needs no training"
    )
    rows += [["dim", str(meta.dim)], ["fitted on", trained]]
    if kept := [f"{part:.2f} at {k}" for k, part in facts.get("neighbours_kept", {}).items() if int(k) <= meta.dim]:
        rows.append(["truncated", f"of the whole vectors' ten nearest, these parts are kept: {', '.join(kept)}"])
    if model.translation is not None:
        recall = model.translation.figures["translated"].recall_10
        rows.append(["gives", f"vectors of {model.translation.target.name.text}: recall@10 {recall}"])
    if model.predictor is not None:
        pairs = [(encoders[j], *model.predictor.agreements[j]) for j in meta.counted]
        kept = [f"{encoder.spec.name} {predicted:.2f} ({dropped:.2f})" for encoder, dropped, predicted in pairs]
        rows.append(["without", "one member, neighbours kept predicted (dropped): " + ", ".join(kept)])
    if meta.spectrum is not None:
        if kind.signed_spectrum:
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
    return f"{METHODS.get(meta.method['name'], Method).spectrum_of} of {which}: {shown}"
