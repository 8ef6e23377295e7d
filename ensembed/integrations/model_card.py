"""A model's card: the README on the hub, made from what the model records. Members are named, not contained."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from ensembed.encoders.base import SavedSpec
from ensembed.encoders.names_and_consent import KINDS, Request, parse_name
from ensembed.errors import InputError
from ensembed.fetch.catalog import catalog
from ensembed.models.ensemble import MetaEncoder
from ensembed.models.saved_model import SavedModel, read_model
from ensembed.sts import Result
from ensembed.support.text_tables import markdown_table
from ensembed.support.version import __version__

Describable: TypeAlias = MetaEncoder | SavedModel[SavedSpec] | str | Path
Scores: TypeAlias = Result | Sequence[Any] | Mapping[str, Any]
Licences: TypeAlias = Mapping[str, str] | None

# The hub's identifiers of licences that models have: SPDX names in lower case, apart from pddl.
_PLAIN_LICENCES = re.compile(
    r"apache-2\.0|mit|isc|zlib|unlicense|wtfpl|pddl|postgresql|bsd(-[23]-clause)?|bsl-1\.0|mpl-2\.0|cc0-1\.0|"
    r"(a|l)?gpl-[23]\.[01]|cc-by(-nc)?(-nd|-sa)?-[234]\.0|eupl-1\.[12]|gemma|llama2|llama3(\.[1-3])?|"
    r"openrail(\+\+)?|bigscience-openrail-m"
)
_UNKNOWN = "unknown"
# In a sentence, or not at all.
_TOLD_ELSEWHERE = ("name", "weights", "weights_from", "trusted", "decided", "sure", "needed", "neighbours_kept")
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|~#$&])")
_COMMIT = re.compile(r"([0-9a-f]{40})(\+[0-9a-f]{40})*")  # of a model on the hub, and of repositories with its code
_ORIGINAL = re.compile(r"([\w.-]+/[\w.-]+):")
_FRONT = re.compile(r"\A---\r?\n(.*?)\r?\n---", re.DOTALL)
_SCORES = "scores are what `ensembed evaluate --json` prints of STS, or results of ensembed.sts.evaluate, also by model"
_LIMITS = """\
The vectors are meant for comparing sentences and short paragraphs: similarity, search, clustering, finding duplicates.
Compare them by cosine.

- What the members do not know, their combination does not know either: it has their languages, their length limits and
  their biases.
- A combination that was fitted on a corpus suits text of the same kind. For other text fit it again: that takes
  sentences, no labels.
- Vectors of different models, or of other revisions of this one, cannot be compared with each other.
- Encoding costs as much as all members together."""
_MEMBERS_APART = """\
This repository holds only the combination. The members' weights are not in it: each member is fetched from its own
source, under its own licence."""


def model_card(
    model: Describable, scores: Scores | None = None, *, repo: str | None = None, licences: Licences = None
) -> str:
    """Return the text of README.md for a model: YAML for the hub, then Markdown. Equal calls give equal texts.

    Args:
        model: a fitted model, or the folder of a saved one; its members are not opened.
        scores: the JSON of `ensembed evaluate --json`, whose results on tasks are left out, or results of
            `ensembed.sts.evaluate`: one, a list, or by model.
        repo: the model's future name on the hub, as `org/name`.
        licences: licences of members that neither the catalogue nor the hub's cache knows, by the members' names.

    Example:
        >>> from ensembed import Ensemble
        >>> from ensembed.methods import Concat
        >>> model = Ensemble(["demo?dim=3&seed=1", "demo?dim=2&seed=2"]).fit(["a", "b"], Concat())
        >>> print(model_card(model).splitlines()[1])
        library_name: ensembed
    """
    saved = facts_of(model)
    names = [spec.name.text for spec in saved.members]
    if unknown := sorted(set(licences or {}) - set(names)):
        raise InputError(f"licences are given for {unknown}, and the members are {names}")
    members = [member_of(spec, licences) for spec in saved.members]
    name = repo or "An ensembed model"
    if not repo and not isinstance(model, SavedModel):
        name = model.spec.name if isinstance(model, MetaEncoder) else Path(model).resolve().name
    table = None if scores is None else _read_scores(scores, name, names)
    parts = [
        f"---\n{_front_matter(members, name, table)}\n---",
        f"# {escaped(name)}",
        _summary(saved),
        "## Members",
        *_members(saved, members),
        "## How it was made",
        _method(saved),
        *(["## Scores", *_scores(table)] if table else []),
        "## How to use it",
        _usage(saved, members, repo),
        "## Intended use and limits",
        _LIMITS,
        "## Versions",
        f"Written by ensembed {__version__}. The files are `config.json` and `model.safetensors`; no code, no pickle.",
    ]
    return "\n\n".join(parts) + "\n"


def facts_of(model: Describable) -> SavedModel[SavedSpec]:
    """Return what a card tells about a model, without opening its members."""
    if isinstance(model, SavedModel):
        return model
    if isinstance(model, MetaEncoder):
        specs = tuple(SavedSpec.of(member.spec) for member in model.ensemble.encoders)
        return SavedModel(model.meta, specs, (), model.corpus)
    if isinstance(model, (str, Path)):
        return read_model(Path(model))
    single = "make a model of a single encoder by Ensemble([encoder]).fit(sentences, Concat())"
    raise InputError(f"a fitted model or the folder of a saved one is wanted, not {type(model).__name__}: {single}")


def escaped(text: str) -> str:
    r"""Return text that Markdown shows unchanged, on one line.

    Example:
        >>> print(escaped("a|b *c* <d>"))
        a\|b \*c\* \<d\>
    """
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


@dataclass(frozen=True)
class Member:
    """A member as others see it; unknown texts are empty, and `local` says why others cannot open it by its name."""

    spec: SavedSpec
    licence: str
    base_model: str = ""
    local: str = ""


def member_of(spec: SavedSpec, licences: Licences = None) -> Member:
    """Return what the spec, the user's licences, the catalogue and the hub's cache tell; nothing is fetched."""
    licence = (licences or {}).get(spec.name.text, "")
    if spec.settings.kind in ("object", "meta"):
        return Member(spec, licence, local="it is an object of your program")
    try:
        request = parse_name(spec.name.text)
    except InputError as error:
        return Member(spec, licence, local=f"its name cannot be opened: {error}")
    if request.entry is not None:
        original = _ORIGINAL.match(request.entry.title)
        return Member(spec, licence or request.entry.licence, original[1] if original else "")
    if request.scheme == "demo":
        return Member(spec, licence or "Apache-2.0")  # part of ensembed
    commit = _COMMIT.fullmatch(spec.settings.revision)
    if commit is not None and request.scheme in ("st", "model2vec"):
        return Member(spec, licence or _cached_licence(request.location, commit[1]), request.location)
    return Member(spec, licence, local=_why_local(request))


def _why_local(request: Request) -> str:
    if request.scheme == "openai":
        from ensembed.encoders.openai.api_servers import find_server

        near = find_server(request.location.partition("#")[0], request.shown).nearby
        return "its server is on this machine" if near else ""
    if request.scheme == "tfhub" and request.location.startswith(("http://", "https://")):
        return ""
    # What follows the scheme of another package may be anything; but a path that exists here is a path.
    try:
        path = request.scheme in KINDS or bool(request.location and Path(request.location).expanduser().exists())
    except (OSError, RuntimeError, ValueError):
        path = False
    return "it is a file or folder" if path else ""


def _cached_licence(repo: str, commit: str) -> str:
    """Return the licence in the model's own card, if the hub's cache has the card."""
    from huggingface_hub import try_to_load_from_cache

    card = try_to_load_from_cache(repo, "README.md", revision=commit)
    if not isinstance(card, str):
        return ""
    try:
        front = _FRONT.match(Path(card).read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return ""
    pairs = re.findall(r"(?m)^(license|license_name): *[\"']?([\w.+-]+)", front[1] if front else "")
    values: dict[str, str] = dict(pairs)
    licence = values.get("license", "")
    return values.get("license_name", licence) if licence == "other" else licence


class _Score(NamedTuple):
    dataset: str
    protocol: str
    pearson: float  # a fraction
    spearman: float


class _ScoreTable(NamedTuple):
    rows: Mapping[str, tuple[_Score, ...]]  # by the names of models
    own: str | None  # the card's own name among them, None if unclear
    version: str  # of ensembed


def _read_scores(scores: Scores, name: str, members: Sequence[str]) -> _ScoreTable:
    """Return the table of the scores; `name` is the card's name of the model, whose members are often scored, too."""
    version = ""
    if isinstance(scores, Mapping) and "models" in scores:
        provenance = scores.get("provenance")
        version = str(provenance.get("ensembed", "")) if isinstance(provenance, Mapping) else ""
        scores = scores["models"]
    by_name = scores if isinstance(scores, Mapping) and "dataset" not in scores else {name: scores}
    rows = {}
    for key, value in by_name.items():
        several = isinstance(value, Sequence) and not isinstance(value, (str, bytes))
        results: Any = value if several else [value]
        on_sts = (result for result in results if not (isinstance(result, Mapping) and "task" in result))
        rows[str(key)] = tuple(map(_read_score, on_sts))
    if not rows or not all(rows.values()):
        empty = [key for key, row in rows.items() if not row]
        raise InputError(f"the scores {f'of {empty[0]!r} ' if empty else ''}are empty: {_SCORES}")
    others = [key for key in rows if key not in members]
    own = name if name in rows else others[0] if len(others) == 1 else None
    return _ScoreTable(rows, own, version)


def _read_score(result: object) -> _Score:
    facts = result.to_json() if isinstance(result, Result) else result
    if not isinstance(facts, Mapping):
        raise InputError(f"{_SCORES}; got {type(result).__name__}")
    if absent := [key for key in _Score._fields if key not in facts]:
        raise InputError(f"{_SCORES}; a result lacks {', '.join(absent)}")
    for value in (facts["pearson"], facts["spearman"]):
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not abs(value) <= 1:  # nor may it be NaN
            raise InputError(f"the score {value!r} on {facts['dataset']} is no correlation: a number from -1 to 1")
    return _Score(str(facts["dataset"]), str(facts["protocol"]), float(facts["pearson"]), float(facts["spearman"]))


def _front_matter(members: Sequence[Member], name: str, table: _ScoreTable | None) -> str:
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
        facts["eval_results"] = []
        for score in table.rows[table.own]:
            data: dict[str, Any] = {"dataset_type": score.dataset, "dataset_name": score.dataset}
            data |= {"task_type": "semantic-similarity", "task_name": "Semantic textual similarity"}
            data |= {"dataset_args": {"protocol": score.protocol}}
            for metric, value in (("pearson", score.pearson), ("spearman", score.spearman)):
                facts["eval_results"].append(EvalResult(**data, metric_type=metric, metric_value=round(100 * value, 2)))
    return str(ModelCardData(**facts).to_yaml()).strip()


def _licence(members: Sequence[Member]) -> dict[str, str]:
    """Return the licence for the hub: the members' if all have the same one, else that each has its own."""
    licences = {member.licence.lower() for member in members}
    licence = licences.pop().replace("pddl-1.0", "pddl")
    if not licences and _PLAIN_LICENCES.fullmatch(licence):
        return {"license": licence}
    return {"license": "other", "license_name": "those-of-the-members"}


def _summary(saved: SavedModel[SavedSpec]) -> str:
    count = len(saved.members)
    members = "one frozen encoder" if count == 1 else f"{count} frozen encoders"
    labels = "used to choose it, except those of the tuning below." if "tuned" in saved.meta.method else "used."
    method = f"combined by {escaped(str(saved.meta.method['name']))} with ensembed"
    return f"One sentence embedding of {saved.meta.dim} dimensions out of {members}, {method}. No labels were {labels}"


def _members(saved: SavedModel[SavedSpec], members: Sequence[Member]) -> list[str]:
    method = saved.meta.method
    weights: Any = method.get("weights")
    numbers = isinstance(weights, (list, tuple)) and len(weights) == len(members)
    rows = []
    for j, member in enumerate(members):
        spec = member.spec.settings
        # A user chooses the name of an object: nothing in it may become Markdown.
        texts = map(escaped, (member.spec.name.text, spec.kind, spec.revision, member.licence or _UNKNOWN))
        rows.append([*texts, str(spec.dim), *([f"{weights[j]:.3g}"] if numbers else [])])
    headers = ["member", "kind", "revision", "licence", "dimensions", *(["weight"] if numbers else [])]
    parts = [markdown_table(headers, rows, left=4), _MEMBERS_APART]
    if unclear := ", ".join(escaped(member.spec.name.text) for member in members if not member.licence):
        parts.append(f"The licence of {unclear} is not known to ensembed: check it before you use the model.")
    if local := [f"{escaped(member.spec.name.text)}: {member.local}" for member in members if member.local]:
        parts.append(f"These members cannot be fetched by their name: {'; '.join(local)}. You need your own.")
    if not numbers:
        equal = weights in (None, "equal")
        parts.append("All members count the same." if equal else f"Weights: {escaped(str(weights))}.")
    # The facts may come from a file that somebody else wrote: they may be anything.
    place, certainty = method.get("trusted"), method.get("sure")
    if method.get("weights_from") == "reliability" and isinstance(place, int) and 0 <= place < len(members):
        share = f" ({certainty:.0%} sure)" if isinstance(certainty, (int, float)) else ""
        parts.append(
            "The weights were found by the members' reliability on the corpus, without labels; the most trusted member "
            f"is {escaped(members[place].spec.name.text)}{share}."
        )
    if method.get("decided") == "too few":
        parts.append("The corpus was too small to tell which member is better, so that all count the same.")
    return parts


def _method(saved: SavedModel[SavedSpec]) -> str:
    meta = saved.meta
    facts = {key: value for key, value in meta.method.items() if key not in _TOLD_ELSEWHERE}
    lines = [f"- method: {escaped(str(meta.method['name']))}"]
    lines += [f"- {escaped(key)}: {escaped(str(value))}" for key, value in facts.items()]
    if "dim" not in meta.method:
        lines.append(f"- dimensions: {meta.dim}")
    corpus = f"{meta.rows:,} unlabelled sentences, key `{escaped(saved.corpus) or _UNKNOWN}`"
    return "\n".join([*lines, f"- corpus: {corpus if meta.rows else 'none was needed'}"])


def _scores(table: _ScoreTable) -> list[str]:
    datasets = [score.dataset for score in next(iter(table.rows.values()))]
    rows = []
    for name, scores in table.rows.items():
        cells = {score.dataset: f"{100 * score.pearson:.1f} / {100 * score.spearman:.1f}" for score in scores}
        label = "**this model**" if name == table.own else escaped(name)
        rows.append([label, *(cells.get(dataset, "–") for dataset in datasets)])
    protocols = sorted({score.protocol for scores in table.rows.values() for score in scores})
    meaning = " (the mean over a year's sub-testsets)" if protocols == ["mean"] else ""
    protocol = f"protocol {' and '.join(map(escaped, protocols))}{meaning}."
    return [
        markdown_table(["", *map(escaped, datasets)], rows),
        f"Pearson's r / Spearman's rho of the cosine with the gold score, times 100; {protocol}",
        *([f"Scored by ensembed {escaped(table.version)}."] if table.version else []),
    ]


def _usage(saved: SavedModel[SavedSpec], members: Sequence[Member], repo: str | None) -> str:
    local = [f"{member.spec.name.text!r}: YOUR_OWN" for member in members if member.local]
    encoders = f", encoders={{{', '.join(local)}}}" if local else ""
    names = dict.fromkeys(spec.name.text.partition("?")[0] for spec in saved.members)
    pulled = " ".join(name for name in names if name in catalog())
    install = ["pip install ensembed", *([f"ensembed pull {pulled}"] if pulled else [])]
    if repo:
        module = "from ensembed.integrations.hub import from_pretrained"
        opening = f'from_pretrained("{repo}"{encoders})  # revision="…" pins a commit'
    else:
        module, opening = "import ensembed", f'ensembed.load("FOLDER"{encoders})'
    code = [module, "", f"model = {opening}"]
    code.append('model.similarity(["A dog runs."], ["A puppy is running.", "Stocks fell."])')
    return "\n".join(["```sh", *install, "```", "", "```python", *code, "```"])
