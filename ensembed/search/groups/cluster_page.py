"""A page to browse clusters: a map of the sentences, and the sentences of each cluster. One file without a network."""

from __future__ import annotations

import html
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from ensembed.encoders.base import FloatArray
from ensembed.models.model_vectors import model_vectors
from ensembed.models.opening import ModelLike, open_model
from ensembed.search.groups.clusters import Clusters
from ensembed.search.groups.group_rows import distinct_rows, leading_directions, unit_matrix
from ensembed.support.extras import import_extra
from ensembed.support.progress import Progress, silent
from ensembed.views import ViewStore

MOST_POINTS = 2000
"""Sentences on the map at most, chosen at random: more take long to lay out, and hide each other."""
MOST_LISTED = 200
"""Different sentences of a cluster that are listed at most, those nearest to its centre first."""
_DIRECTIONS = 50  # leading directions from which the map is made, as is usual for t-SNE
_LEAST_POINTS = 8  # fewer points have no neighbourhoods to keep
_NAME_WORDS = 3
_WIDE, _HIGH = 1000, 700  # the drawing of the map
_NAME_WIDE, _NAME_HIGH = 230, 18  # the room of a name on the map
_TURN = 137.5  # degrees between the colours of clusters that follow each other


def cluster_page(
    clusters: Clusters,
    model: ModelLike,
    *,
    title: str = "Clusters",
    store: ViewStore | None = None,
    progress: Progress = silent,
) -> str:
    """Return an HTML page with a map of the sentences and a list of each cluster's sentences.

    The map is t-SNE (van der Maaten and Hinton 2008) of at most `MOST_POINTS` distinct sentences: points that are near
    each other are similar sentences; large distances mean nothing. The page loads nothing.

    Args:
        clusters: what `find_clusters` returned.
        model: the model that it was given.
        title: heading of the page.
        store: where the vectors are stored, which are read again; by default the user's cache.
        progress: receives the number of rows.
    """
    distinct = distinct_rows(clusters.corpus)[1]
    random = np.random.default_rng(clusters.seed)
    rows = np.sort(random.choice(distinct, min(len(distinct), MOST_POINTS), replace=False))
    [vectors] = model_vectors(clusters.corpus, [open_model(model)], store or ViewStore(), progress=progress)
    with unit_matrix(vectors, rows, progress=progress) as U:
        places = layout_points(np.asarray(U), seed=clusters.seed)
    own = {number: _nearest_first(clusters, distinct, number) for number in range(-1, len(clusters.clusters))}
    shown = {*rows.tolist(), *(row for some in own.values() for row in some[:MOST_LISTED])}
    texts = {record["row"]: record["text"] for record in clusters.records() if record["row"] in shown}
    numbers = [*range(len(clusters.clusters)), *([-1] if (clusters.labels < 0).any() else [])]
    parts = {
        "@title": html.escape(title.encode("utf-8", "replace").decode()),  # the name of a file may be no text
        "@facts": f"{_count(len(clusters.labels), len(distinct))} in {len(clusters.clusters)} clusters "
        f"({clusters.method})." + (f" The map shows {len(rows)} of them." if len(rows) < len(distinct) else ""),
        "@map": _map(clusters, rows, places, texts),
        "@clusters": "\n".join(_section(clusters, number, own[number], texts) for number in numbers),
    }
    page = (files("ensembed.search.groups") / "cluster_page.html").read_text(encoding="utf-8")
    # In one pass: a sentence may look like a place to fill in.
    return "".join(parts.get(piece, piece) for piece in page.split("\N{SECTION SIGN}"))


def layout_points(U: FloatArray, *, seed: int = 0) -> NDArray[np.float64]:
    """Return places [m, 2] in the unit square of rows U [m, d] of length one, similar rows near each other."""
    reduced, values = leading_directions(U, _DIRECTIONS)
    places = np.zeros((len(U), 2))
    places[:, : reduced.shape[1]] = reduced[:, :2]
    if len(U) >= _LEAST_POINTS and values[0] > 0:
        learn = import_extra("sklearn.manifold", "cluster", "drawing a map of clusters")
        layout = learn.TSNE(2, perplexity=min(30, (len(U) - 1) / 3), init=places / values[0], random_state=seed)
        places = layout.fit_transform(reduced)
    low, high = places.min(axis=0), places.max(axis=0)
    return np.asarray((places - low) / np.maximum(high - low, 1e-12), np.float64)


def _nearest_first(clusters: Clusters, distinct: NDArray[np.int64], number: int) -> list[int]:
    """Return the rows of a cluster that repeat no earlier one, those nearest to its centre first."""
    own = distinct[clusters.labels[distinct] == number]
    rows: list[int] = own[np.argsort(-clusters.cosine[own], kind="stable")].tolist()
    return rows


def _count(sentences: int, different: int) -> str:
    return f"{sentences} sentences" + (f" ({different} different ones)" if different < sentences else "")


def _colour(number: int) -> str:
    return f"--hue:{number * _TURN % 360:.0f}" if number >= 0 else "--chroma:0%"


def _map(clusters: Clusters, rows: NDArray[np.int64], places: NDArray[np.float64], texts: dict[int, str]) -> str:
    """Return the points and the names of the clusters, in the drawing."""
    at = 20 + places * [_WIDE - 40, _HIGH - 40]
    labels = clusters.labels[rows]
    points = [
        f'<circle cx="{x:.0f}" cy="{y:.0f}" r="4" data-cluster="{label}" style="{_colour(int(label))}">'
        f"<title>{html.escape(texts[row])}</title></circle>"
        for row, label, (x, y) in zip(rows.tolist(), labels.tolist(), at.tolist(), strict=True)
    ]
    names = []
    placed: list[tuple[float, float]] = []
    for cluster in clusters.clusters:
        own = at[labels == cluster.number]
        if len(own):
            x, middle = np.median(own, axis=0).tolist()
            # Names on top of each other, or outside of the drawing, cannot be read; the list has those without room.
            near = (middle + step * _NAME_HIGH for step in sorted(range(-40, 41), key=abs))
            y = next((y for y in near if _NAME_HIGH <= y <= _HIGH - 6 and _is_free(x, y, placed)), None)
            if y is not None:
                placed.append((x, y))
                name = ", ".join(cluster.words[:_NAME_WORDS]) or f"cluster {cluster.number}"
                names.append(f'<text x="{x:.0f}" y="{y:.0f}">{html.escape(name)}</text>')
    return "\n".join(points + names)


def _is_free(x: float, y: float, placed: list[tuple[float, float]]) -> bool:
    return not any(abs(x - left) < _NAME_WIDE and abs(y - top) < _NAME_HIGH for left, top in placed)


def _section(clusters: Clusters, number: int, own: list[int], texts: dict[int, str]) -> str:
    """Return a cluster that can be unfolded."""
    size = int((clusters.labels == number).sum())
    words = ", ".join(clusters.clusters[number].words) if number >= 0 else "in no cluster"
    items = "\n".join(f"<li>{html.escape(texts[row])}</li>" for row in own[:MOST_LISTED])
    more = f"<p>and {len(own) - MOST_LISTED} others, not listed here</p>" if len(own) > MOST_LISTED else ""
    summary = f"<b>{html.escape(words or f'cluster {number}')}</b> {_count(size, len(own))}"
    return (
        f'<details data-cluster="{number}" style="{_colour(number)}"><summary>{summary}</summary>\n'
        f"<ul>\n{items}\n</ul>{more}</details>"
    )
