"""A model's card: the README that a model has on the hub, made of what the model knows about itself."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from ensembed.errors import InputError
from ensembed.integrations.card_scores import Scores, Table, read_scores
from ensembed.integrations.hub_members import Member, member_of
from ensembed.models.ensemble import MetaEncoder
from ensembed.models.saved_model import SavedModel, read_model
from ensembed.support.text_tables import markdown_table
from ensembed.support.version import __version__

Described: TypeAlias = MetaEncoder | SavedModel | str | Path

# The hub's words for licences, where they are not the usual ones in small letters.
_HUB_LICENCES = {"pddl-1.0": "pddl"}
# Such as the hub knows in small letters, and as models have.
_PLAIN_LICENCES = re.compile(
    r"apache-2\.0|mit|isc|zlib|unlicense|wtfpl|pddl|postgresql|bsd(-[23]-clause)?|bsl-1\.0|mpl-2\.0|cc0-1\.0|"
    r"(a|l)?gpl-[23]\.[01]|cc-by(-nc)?(-nd|-sa)?-[234]\.0|eupl-1\.[12]|gemma|llama2|llama3(\.[1-3])?|"
    r"openrail(\+\+)?|bigscience-openrail-m"
)
_UNKNOWN = "unknown"
# Facts of a fitted method that have a sentence of their own, or none.
_TOLD = ("name", "weights", "weights_from", "trusted", "decided", "sure")
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|~#$&])")


def model_card(
    model: Described,
    scores: Scores | None = None,
    *,
    repo: str | None = None,
    licences: Mapping[str, str] | None = None,
) -> str:
    """The text of README.md for a model: YAML for the hub, then Markdown for people. It is the same at every call.

    Args:
        model: a fitted model, or the folder of a saved one; its members are not opened.
        scores: figures on STS, if there are any: what `ensembed evaluate --json` prints (read as JSON), or results of
            `ensembed.sts.evaluate`, one, a list, or lists by the names of models.
        repo: the name that the model will have on the hub, as `org/name`.
        licences: the licences of members that the catalogue and the hub's cache do not tell, by the members' names.

    Raises:
        InputError: the scores are not of that form.

    Example:
        >>> from ensembed import Ensemble
        >>> from ensembed.methods import Concat
        >>> model = Ensemble(["demo?dim=3&seed=1", "demo?dim=2&seed=2"]).fit(["a", "b"], Concat())
        >>> print(model_card(model).splitlines()[1])
        library_name: ensembed
    """
    saved = described(model)
    unknown = sorted(set(licences or {}) - {spec.name for spec in saved.members})
    if unknown:
        raise InputError(f"licences are given for {unknown}, and the members are {[m.name for m in saved.members]}")
    members = [member_of(spec, licences) for spec in saved.members]
    name = repo or _name_of(model)
    table = None if scores is None else read_scores(scores, name, [spec.name for spec in saved.members])
    parts = [
        f"---\n{_front_matter(members, name, table)}\n---",
        f"# {escaped(name)}",
        _summary(saved),
        "## Members",
        _members(saved, members),
        "## How it was made",
        _making(saved),
        *(["## Scores", _scores(table)] if table else []),
        "## How to use it",
        _usage(saved, members, repo),
        "## Intended use and limits",
        _LIMITS,
        "## Versions",
        f"Written by ensembed {__version__}. The files are `config.json` and `model.safetensors`; no code, no pickle.",
    ]
    return "\n\n".join(parts) + "\n"


def described(model: Described) -> SavedModel:
    """What is to be said of a model, without opening its members.

    Raises:
        InputError: it is no fitted model.
        ModelError: the folder holds none.
    """
    if isinstance(model, SavedModel):
        return model
    if isinstance(model, MetaEncoder):
        return SavedModel(model.meta, tuple(one.spec for one in model.ensemble.encoders), (), model.corpus)
    if isinstance(model, (str, Path)):
        return read_model(Path(model))
    raise InputError(
        f"a fitted model or the folder of a saved one is wanted, not {type(model).__name__}: a single encoder becomes "
        "one by Ensemble([it]).fit(sentences, Concat())"
    )


def escaped(text: str) -> str:
    r"""Text that Markdown shows as it is, on one line.

    Example:
        >>> print(escaped("a|b *c* <d>"))
        a\|b \*c\* \<d\>
    """
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


_LIMITS = """\
The vectors are meant for comparing sentences and short paragraphs: similarity, search, clustering, finding duplicates.
Compare them by cosine.

- What the members do not know, their combination does not know either: their languages, their length limits and their
  biases are its own.
- A combination that was fitted on a corpus suits text of its kind. For other text fit it again: that takes sentences,
  no labels.
- Vectors of different models, or of other revisions of this one, cannot be compared with each other.
- Encoding costs as much as all members together."""


_APART = """\
Only the combination is here. The members' weights are not: each member is fetched from where it comes from, under its
own licence."""


def _name_of(model: Described) -> str:
    if isinstance(model, MetaEncoder):
        return model.spec.name
    return "An ensembed model" if isinstance(model, SavedModel) else Path(model).resolve().name


def _front_matter(members: Sequence[Member], name: str, table: Table | None) -> str:
    from huggingface_hub import EvalResult, ModelCardData

    facts: dict[str, Any] = {
        "library_name": "ensembed",
        "pipeline_tag": "sentence-similarity",
        "tags": ["ensembed", "sentence-embeddings", "meta-embeddings", "sentence-similarity", "feature-extraction"],
        **_licence(members),
    }
    if bases := list(dict.fromkeys(member.base_model for member in members if member.base_model)):
        facts["base_model"] = bases
    if table is not None and table.own is not None:
        facts["model_name"] = name
        facts["eval_results"] = [
            EvalResult(
                task_type="semantic-similarity",
                task_name="Semantic textual similarity",
                dataset_type=figure.dataset,
                dataset_name=figure.dataset,
                dataset_args={"protocol": figure.protocol},
                metric_type=metric,
                metric_value=round(100 * value, 2),
            )
            for figure in table.figures[table.own]
            for metric, value in (("pearson", figure.pearson), ("spearman", figure.spearman))
        ]
    return str(ModelCardData(**facts).to_yaml()).strip()


def _licence(members: Sequence[Member]) -> dict[str, str]:
    """What the hub is told: the licence where all members have the same one, else that each has its own."""
    found = {member.licence.lower() for member in members}
    one = _HUB_LICENCES.get(next(iter(found)), next(iter(found)))
    if len(found) == 1 and _PLAIN_LICENCES.fullmatch(one):
        return {"license": one}
    return {"license": "other", "license_name": "those-of-the-members"}


def _summary(saved: SavedModel) -> str:
    count = len(saved.members)
    members = "one frozen encoder" if count == 1 else f"{count} frozen encoders"
    return (
        f"One sentence embedding of {saved.meta.dim} dimensions out of {members}, combined by "
        f"{escaped(str(saved.meta.method['name']))} with ensembed. No labels were "
        + ("used to choose it, but for those of the tuning below." if "tuned" in saved.meta.method else "used.")
    )


def _members(saved: SavedModel, members: Sequence[Member]) -> str:
    weights = saved.meta.method.get("weights")
    known = isinstance(weights, (list, tuple)) and len(weights) == len(members)
    rows = []
    for j, member in enumerate(members):
        spec = member.spec
        # A name may be that of somebody's object: nothing in it may become Markdown.
        row = [
            escaped(spec.name),
            escaped(spec.kind),
            escaped(spec.revision),
            escaped(member.licence or _UNKNOWN),
            str(spec.dim),
        ]
        rows.append([*row, f"{weights[j]:.3g}"] if known else row)  # type: ignore[index]  # `known` says what it is
    headers = ["member", "kind", "revision", "licence", "dimensions", *(["weight"] if known else [])]
    text = [markdown_table(headers, rows, left=4), _APART]
    if unclear := [escaped(member.spec.name) for member in members if not member.licence]:
        text.append(
            f"The licence of {', '.join(unclear)} is not known to ensembed: look for it before you use the model."
        )
    if staying := [f"{escaped(member.spec.name)}: {member.stays}" for member in members if member.stays]:
        text.append("These members are not to be had by their name: " + "; ".join(staying) + ". You need your own.")
    if not known:
        text.append(
            "All members count the same." if weights in (None, "equal") else f"Weights: {escaped(str(weights))}."
        )
    if trust := _trust(saved.meta.method, members):
        text.append(trust)
    return "\n\n".join(text)


def _trust(facts: Mapping[str, Any], members: Sequence[Member]) -> str:
    """How weights by reliability were found, as far as the model knows."""
    place = facts.get("trusted")
    if facts.get("weights_from") != "reliability" or not isinstance(place, int) or not 0 <= place < len(members):
        return ""
    sure = facts.get("sure")
    share = f" (first in {sure:.0%} of the bootstrap samples)" if isinstance(sure, (int, float)) else ""
    return (
        "The weights were found by the members' reliability on the corpus, without labels; the most trusted member is "
        f"{escaped(members[place].spec.name)}{share}."
    )


def _making(saved: SavedModel) -> str:
    meta = saved.meta
    lines = [f"- method: {escaped(str(meta.method['name']))}"]
    lines += [f"- {escaped(key)}: {escaped(str(value))}" for key, value in meta.method.items() if key not in _TOLD]
    if "dim" not in meta.method:
        lines.append(f"- dimensions: {meta.dim}")
    lines.append(
        f"- corpus: {meta.rows:,} unlabelled sentences, key `{escaped(saved.corpus) or _UNKNOWN}`"
        if meta.rows
        else "- corpus: none was needed"
    )
    return "\n".join(lines)


def _scores(table: Table) -> str:
    names = list(table.figures)
    datasets = [figure.dataset for figure in table.figures[names[0]]]
    rows = []
    for name, figures in table.figures.items():
        label = "**this model**" if name == table.own else escaped(name)
        cells = {figure.dataset: f"{100 * figure.pearson:.1f} / {100 * figure.spearman:.1f}" for figure in figures}
        rows.append([label, *(cells.get(dataset, "–") for dataset in datasets)])
    protocols = sorted({figure.protocol for figures in table.figures.values() for figure in figures})
    told = [
        markdown_table(["", *map(escaped, datasets)], rows),
        "Pearson's r / Spearman's rho of the cosine with the gold score, times 100; protocol "
        f"{' and '.join(map(escaped, protocols))}"
        + (" (the mean over a year's sub-testsets)." if protocols == ["mean"] else "."),
    ]
    if table.version:
        told.append(f"Scored by ensembed {escaped(table.version)}.")
    return "\n\n".join(told)


def _usage(saved: SavedModel, members: Sequence[Member], repo: str | None) -> str:
    staying = [member.spec.name for member in members if member.stays]
    extra = f", encoders={{{', '.join(f'{name!r}: YOUR_OWN' for name in staying)}}}" if staying else ""
    pulled = [spec.name.partition("?")[0] for spec in saved.members if _is_short(spec.name)]
    lines = ["pip install ensembed", *([f"ensembed pull {' '.join(dict.fromkeys(pulled))}"] if pulled else [])]
    if repo:
        loading = ["from ensembed.integrations.hub import from_pretrained", ""]
        loading.append(f'model = from_pretrained("{repo}"{extra})  # revision="…" pins a commit')
    else:
        loading = ["import ensembed", "", f'model = ensembed.load("FOLDER"{extra})']
    loading.append('model.similarity(["A dog runs."], ["A puppy is running.", "Stocks fell."])')
    return "\n".join(["```sh", *lines, "```", "", "```python", *loading, "```"])


def _is_short(name: str) -> bool:
    from ensembed.fetch.catalog import catalog

    return name.partition("?")[0] in catalog()
