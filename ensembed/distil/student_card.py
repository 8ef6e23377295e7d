"""A student's card: the README.md beside it, with figures, teacher, corpus and licences."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ensembed.encoders.base import Encoder, without_password
from ensembed.fetch.catalog import catalog
from ensembed.models.ensemble import MetaEncoder
from ensembed.support.text_tables import markdown_table
from ensembed.support.version import __version__

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|~#$&])")
_FOLDERS = re.compile(r"=[~.]{0,2}/(?:[^&/]*/)*(?=[^&])")  # of a path in an option
_UNKNOWN = "not known here"
_MEANING = """\
On held-out sentences of the corpus, without labels. Overlap: the part of a sentence's ten nearest under the teacher
that are also its ten nearest under the student. Order: Spearman's correlation of both models' cosines over the pairs
that are near under the teacher."""
_USE = """\
Compare vectors by cosine. They have length one; the first dimensions can be used alone if the table above has them."""
_OPENING = {
    "static": """\
```python
from ensembed import load
vectors = load("model2vec:FOLDER").encode(["a sentence"])

from model2vec import StaticModel
vectors = StaticModel.from_pretrained("FOLDER").encode(["a sentence"])

from sentence_transformers import SentenceTransformer
vectors = SentenceTransformer("FOLDER").encode(["a sentence"])
```""",
    "bert": """\
```python
from ensembed import load
vectors = load("st:FOLDER").encode(["a sentence"])

from sentence_transformers import SentenceTransformer
vectors = SentenceTransformer("FOLDER").encode(["a sentence"])
```""",
}


def teacher_facts(source: Encoder | Path) -> dict[str, Any]:
    """Return the teacher's name, and its members with their licences and weights."""
    if isinstance(source, Path):
        return {"name": source.name, "members": []}
    encoders = list(source.members) if isinstance(source, MetaEncoder) else [source]
    weights = list(source.weights.values()) if isinstance(source, MetaEncoder) else [1.0]
    members = [
        {"name": shown_name(encoder.spec.name), "licence": licence_of(encoder.spec.name), "weight": round(weight, 4)}
        for encoder, weight in zip(encoders, weights, strict=True)
        if weight
    ]
    return {"name": shown_name(source.spec.name), "members": members}


def shown_name(name: str) -> str:
    """Return an encoder's name for others: without a password, of a path on this machine only the last part.

    Example:
        >>> shown_name("minilm?query_prefix=a/b"), shown_name("words:words.txt?corpus=/home/me/corpus.txt")
        ('minilm?query_prefix=a/b', 'words:words.txt?corpus=corpus.txt')
    """
    whole, mark, options = without_password(name).partition("?")
    scheme, colon, place = whole.partition(":")
    if not colon:
        whole = Path(whole).name
    elif "/" in place and not place.startswith("//") and Path(place).expanduser().exists():
        whole = f"{scheme}:{Path(place).name}"
    return whole + mark + _FOLDERS.sub("=", options)


def licence_of(name: str) -> str:
    """Return the licence of an encoder of the catalogue; of others it is not known here."""
    entry = catalog().get(name.partition("?")[0])
    return entry.licence if entry is not None else _UNKNOWN


def student_card(name: str, facts: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    """Return the text of README.md.

    Args:
        name: what the student is called.
        facts: the facts of its job.
        result: the figures of its training.
    """
    source, kind = facts["source"], facts["student"]
    library = "model2vec" if kind == "static" else "sentence-transformers"
    tags = [
        "sentence-similarity",
        "feature-extraction",
        "distillation",
        *(["static-embeddings"] if kind == "static" else []),
    ]
    front = [f"library_name: {library}", "pipeline_tag: sentence-similarity", "tags:", *(f"- {tag}" for tag in tags)]
    parts = [
        "---\n" + "\n".join(front) + "\n---",
        f"# {_escaped(name)}",
        _summary(facts),
        "## What it keeps of its teacher",
        _figures(result),
        _MEANING,
        "## What went in",
        _ingredients(source),
        _corpus(source, result["facts"], facts["variants"]),
        "## How it was made",
        _training(facts, result),
        "## How to use it",
        _OPENING[kind].replace("FOLDER", name),
        _USE,
        f"Written by ensembed {__version__}; no code, no pickle.",
    ]
    return "\n\n".join(parts) + "\n"


def _summary(facts: Mapping[str, Any]) -> str:
    what = "One vector per token, averaged: a static model"
    if facts["student"] == "bert":
        layers = facts["bert"]["num_hidden_layers"]
        what = f"A BERT of {layers} layer{'s' * (layers != 1)} with mean pooling and a linear layer"
    return (
        f"{what}, {facts['dim']} dimensions. It was trained without labels to give the vectors of "
        f"{_escaped(facts['source']['teacher']['name'])}, centred and projected on their leading dimensions."
    )


def _corpus(source: Mapping[str, Any], facts: Mapping[str, Any], variants: int) -> str:
    changed = f", {variants:,} of them changed versions of others," if variants else ""
    counts = f"{facts['sentences']:,} sentences to train on{changed} and {facts['held_out']:,} held out"
    return (
        f"Corpus: {_escaped(source['corpus'])}, {counts} (key {source['corpus_key']}). The corpus and the members have "
        "licences of their own; what they ask for may apply to this student, too."
    )


def _figures(result: Mapping[str, Any]) -> str:
    return markdown_table(["", "overlap at 10", "order"], figure_rows(result))


def _cells(figures: Mapping[str, Any]) -> list[str]:
    return [f"{100 * figures['overlap']:.1f}%", f"{figures['spearman']:.3f}"]


def _ingredients(source: Mapping[str, Any]) -> str:
    rows = [
        ["teacher", _escaped(member["name"]), str(member["weight"]), _escaped(member["licence"])]
        for member in source["teacher"]["members"]
    ]
    rows += [["start", _escaped(part["name"]), "", _escaped(part["licence"])] for part in source["start"]]
    if not rows:
        return f"Teacher: the vectors in {_escaped(source['teacher']['name'])}."
    return markdown_table(["", "model", "weight", "licence"], rows, left=2)


def _training(facts: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    training, about = facts["training"], result["facts"]
    leading = f", the first {', '.join(map(str, training['leading']))} dimensions too" if training["leading"] else ""
    epochs = f"{training['epochs']} epochs in batches of {training['batch_size']}, seed {training['seed']}"
    steps = f"{about['steps']} steps in {about['seconds']:g} seconds, the best of them {about['best_step']}"
    near = f", and the divergence of near cosines times {training['near']:g}" if training["near"] else ""
    return f"Loss 1 - cos{leading}{near}; Adam with rate {training['learning_rate']:g}, {epochs}; {steps}."


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", " ".join(str(text).split()))


def figure_rows(result: Mapping[str, Any]) -> list[list[str]]:
    """Return the figures: what they are of, overlap and order."""
    rows = [["start, untrained", *_cells(result["start"])], ["student, trained", *_cells(result["best"])]]
    if result["saved"] != result["best"]:
        rows.append(["whitened, as saved", *_cells(result["saved"])])
    return rows + [[f"its first {k} dimensions", *_cells(figures)] for k, figures in result["leading"].items()]
