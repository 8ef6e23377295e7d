"""Objects show themselves: in a line, in print, and in a notebook, on one screen each."""

from __future__ import annotations

import html
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ensembed import Ensemble, ListCorpus, ObjectEncoder, load, open_encoder
from ensembed.methods import GCCA, METHODS, Auto, Concat, UpProjection, make_method
from ensembed.reliability import reliability
from ensembed.reliability.likeness import compare
from ensembed.search import Index
from ensembed.search.groups import find_clusters, find_duplicates

TEXTS = [f"{word} {other} {i}" for i in range(20) for word in ("dog", "cat", "fox") for other in ("runs", "sleeps")]
NAMES = ["demo?dim=8&seed=1", "demo?dim=6&seed=2"]


def _views(number: int = 3) -> list[Any]:
    rng = np.random.default_rng(0)
    shared = rng.standard_normal((300, 8))
    return [shared + rng.standard_normal((300, 8)) for _ in range(number)]


def _index() -> Index:
    index = Index.create(Path(tempfile.mkdtemp()) / "index", "demo")
    index.add(TEXTS)
    return index


OBJECTS: dict[str, Callable[[], Any]] = {
    "model": lambda: Ensemble(NAMES).fit(TEXTS),
    "gcca model": lambda: Ensemble(NAMES).fit(TEXTS, GCCA(dim=3)),
    "model of forty": lambda: Ensemble([f"demo?dim=4&seed={i}" for i in range(40)]).fit(TEXTS, Concat()),
    "ensemble": lambda: Ensemble([f"demo?dim=4&seed={i}" for i in range(40)]),
    "encoder": lambda: open_encoder("demo?prefix=query: &normalize=true"),
    "fitted": lambda: GCCA(dim=3).fit(_views()),
    "fitted auto": lambda: Auto().fit(_views()),
    "estimate": lambda: reliability(_views()),
    "comparison": lambda: compare(_views(), names=["a", "b", "c"]),
    "index": _index,
    "duplicates": lambda: find_duplicates(TEXTS, "demo", threshold=0.9),
    "clusters": lambda: find_clusters(TEXTS, "demo", clusters=30, words=12),
    "corpus": lambda: ListCorpus(TEXTS),
    **{name: partial(make_method, name, **({"dim": 4} if name == "up" else {})) for name in METHODS},
}


@pytest.mark.parametrize("name", OBJECTS)
def test_objects_fit_a_screen(name: str) -> None:
    shown = OBJECTS[name]()
    line, text = repr(shown), str(shown)
    assert line.startswith(f"{type(shown).__name__}(")
    assert len(line) <= 1000
    assert "\n" not in line
    assert " at 0x" not in line
    assert len(text.splitlines()) <= 24
    assert all(len(row) <= 130 for row in text.splitlines()) or name in METHODS
    if name != "corpus":
        page = shown._repr_html_()
        assert page.startswith("<table>")
        assert page.count("<tr>") <= 24
        assert type(shown).__name__ in page


def test_a_model_tells_members_weights_dimension_and_corpus(tmp_path: Path) -> None:
    fitted = Ensemble(NAMES).fit(TEXTS, Auto(weights=(1, 0.25)))
    fitted.save(tmp_path / "model")
    for model in (fitted, load(tmp_path / "model")):
        assert model.dim == 14
        assert [member.spec.name for member in model.members] == NAMES
        assert model.weights == dict(zip(NAMES, (1.0, 0.25), strict=True))
        assert model.method["name"] == "auto"
        for shown in (str(model), html.unescape(model._repr_html_())):
            for fact in (*NAMES, "weight 0.25", "14", "auto"):
                assert fact in shown
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(TEXTS))
    trained = Ensemble(NAMES).fit(corpus, GCCA(dim=3))
    trained.save(tmp_path / "trained")
    key = f"(key {trained.corpus[:8]})"
    for model in (trained, trained.truncate(2)):
        assert f"120 sentences of {corpus} {key}" in " ".join(str(model).split())
    for model in (load(tmp_path / "trained"), Ensemble(NAMES).fit(TEXTS, GCCA(dim=3))):
        assert f"120 sentences {key}" in str(model)


def test_long_values_go_on_in_the_next_line() -> None:
    members = [f"demo?dim=4&seed={i}" for i in range(1, 8)]
    model = Ensemble(members).fit(TEXTS, Concat())
    name = next(value for what, value in model._facts() if what == "name")
    assert len(name) > 100
    assert name in " ".join(str(model).split())
    assert name in html.unescape(model._repr_html_())


def test_many_members_do_not_hide_the_other_facts() -> None:
    members = [f"demo?dim=4&seed={i}" for i in range(40)]
    for shown in (str(model := Ensemble(members).fit(TEXTS, Concat())), model._repr_html_()):
        assert all(fact in shown for fact in ("seed=5", "more", "160", "no training"))
        assert "seed=39 (4)" not in shown


def test_the_weights_say_who_counts() -> None:
    assert Ensemble(NAMES).fit(TEXTS, Concat()).weights == dict.fromkeys(NAMES, 1.0)
    assert Ensemble(NAMES).fit(TEXTS, Concat(weights=(1, 0))).weights == dict(zip(NAMES, (1.0, 0.0), strict=True))
    up = Ensemble(NAMES[:1]).fit(TEXTS, UpProjection(dim=20))
    assert up.weights == {NAMES[0]: 1.0}


def test_groups_tell_what_was_found() -> None:
    texts = [*TEXTS, *TEXTS[:5]]
    shown = " ".join(str(find_duplicates(texts, "demo", threshold=0.999)).split())
    assert "sentences 125" in shown
    assert "duplicates 5 threshold 0.9990 candidates 0" in shown
    clusters = find_clusters(TEXTS, "demo", clusters=2)
    for number, cluster in enumerate(clusters.clusters):
        row = next(value for name, value in clusters._facts()[number + 3 :] if name == "cluster")
        assert row == f"{cluster.size} sentences: {', '.join(cluster.words)}"
    assert "kind      demo" in str(open_encoder("demo"))  # without the quotes of repr


class Foreign:
    def encode(self, sentences: list[str]) -> Any:  # noqa: ANN401 - as a user's own class would
        return [[len(sentence), 1.0] for sentence in sentences]


def test_what_is_shown_is_escaped() -> None:
    assert "<script>" not in ObjectEncoder(Foreign(), name="<script>alert(1)</script>")._repr_html_()


def test_a_password_is_not_shown() -> None:
    encoder = ObjectEncoder(Foreign(), name="openai:https://me:hunter2@host/v1#m")
    model = Ensemble([encoder, "demo"]).fit(TEXTS, Concat())
    for shown in (encoder, model, model.ensemble):
        assert "hunter2" not in repr(shown) + str(shown) + shown._repr_html_()
