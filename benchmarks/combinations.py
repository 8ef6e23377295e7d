"""`python -m benchmarks.combinations`: what else was tried beside and on top of `Auto`, on STS-B dev alone.

Prints, and writes to `results/combinations.md`, the scores of variants of `Auto` on a few ensembles: fitted on the
unlabelled sentences of STS-B train, scored on STS-B dev. docs/explanation/reliability.md says what was made of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ensembed.corpora.corpus import ListCorpus
from ensembed.fetch.fetcher import pull
from ensembed.methods import GCCA
from ensembed.methods.weights import scales
from ensembed.models.ensemble import Ensemble
from ensembed.numerics.row_matrices import unit_rows
from ensembed.reliability import Reliability, reliability
from ensembed.reliability.sufficiency import POWER
from ensembed.sts import Dataset, Score, distinct_sentences, evaluate
from ensembed.sts.find import find_sts
from ensembed.support.atomic_files import write_atomically
from ensembed.support.provenance import provenance
from ensembed.support.text_tables import markdown_table
from ensembed.views import ViewStore

ENSEMBLES = (
    ("minilm", "use-lite", "wordllama"),
    ("use-lite", "wordllama"),
    ("gte-small", "minilm"),
    ("gte-small", "minilm", "use-lite", "wordllama"),
    ("gte-small", "minilm", "use-lite", "wordllama", "glove"),
)

Matrix: TypeAlias = NDArray[np.float64]
Variant: TypeAlias = Callable[[Matrix, Matrix], Matrix]
"""From the corpus's vectors and those that are scored to other vectors of the latter."""
Members: TypeAlias = Callable[[Reliability, Mapping[str, Sequence[Matrix]]], dict[str, Matrix]]
"""From the members' vectors, of the corpus and of what is scored, to a concatenation of both."""


def as_they_are(_corpus: Matrix, scored: Matrix) -> Matrix:
    return scored


def centred(corpus: Matrix, scored: Matrix) -> Matrix:
    return np.asarray(scored - corpus.mean(axis=0))


def less(k: int) -> Variant:
    """Centred, without the k directions of largest variance (Mu and Viswanath 2018)."""

    def variant(corpus: Matrix, scored: Matrix) -> Matrix:
        top = _axes(centred(corpus, corpus))[1][:, :k]
        Z = centred(corpus, scored)
        return np.asarray(Z - (Z @ top) @ top.T)

    return variant


def whitened(p: float) -> Variant:
    """Centred, each principal direction divided by its standard deviation to the power p."""

    def variant(corpus: Matrix, scored: Matrix) -> Matrix:
        values, axes = _axes(centred(corpus, corpus))
        return np.asarray((centred(corpus, scored) @ axes) * (values + 1e-3 * values.mean()) ** (-p / 2))

    return variant


def shortened(dim: int) -> Variant:
    """The leading directions of the uncentred second moment: what `Auto(dim=...)` does."""
    return lambda corpus, scored: scored @ _axes(corpus)[1][:, :dim]


def short_enough(part: float) -> Variant:
    """As few of them as keep this part of the second moment: a dimension that is chosen without labels."""

    def variant(corpus: Matrix, scored: Matrix) -> Matrix:
        values, axes = _axes(corpus)
        d = int(np.searchsorted(np.cumsum(values) / values.sum(), part)) + 1
        print("dimensions:", d, flush=True)
        return np.asarray(scored @ axes[:, :d])

    return variant


def contrastive(steps: int, batch: int = 512, temperature: float = 0.05) -> Variant:
    """A linear map under which nearest neighbours are told from others (InfoNCE, begun at the identity)."""

    def variant(corpus: Matrix, scored: Matrix) -> Matrix:
        import torch

        torch.manual_seed(0)
        X = torch.from_numpy(unit_rows(corpus).astype(np.float32))
        partner = torch.from_numpy(_nearest(unit_rows(corpus)))
        W = torch.eye(X.shape[1], requires_grad=True)
        adam = torch.optim.Adam([W], lr=3e-4)
        for _ in range(steps):
            rows = torch.randperm(len(X))[:batch]
            one, other = (torch.nn.functional.normalize(X[which] @ W, dim=1) for which in (rows, partner[rows]))
            loss = torch.nn.functional.cross_entropy(one @ other.T / temperature, torch.arange(len(rows)))
            adam.zero_grad()
            loss.backward()
            adam.step()
        return np.asarray(scored @ W.detach().numpy().astype(np.float64))

    return variant


def neighbours_together(p: float) -> Variant:
    """Directions in which nearest neighbours differ count less, by the power p: a neighbour-preserving linear map."""

    def variant(corpus: Matrix, scored: Matrix) -> Matrix:
        values, axes = _axes(corpus - corpus[_nearest(unit_rows(corpus))])
        return np.asarray((scored @ axes) * (values + 0.1 * values.mean()) ** (-p / 2))

    return variant


def locally_linear(part: float, k: int = 10) -> Variant:
    """A part of each vector replaced by its best linear reconstruction from its k neighbours (after Bollegala 2018)."""

    def variant(corpus: Matrix, scored: Matrix) -> Matrix:
        U = unit_rows(corpus)
        result = np.empty_like(scored)
        for i, z in enumerate(scored):
            near = np.argpartition(-(U @ z), k)[:k]
            differences = corpus[near] - z
            gram = differences @ differences.T
            gram[np.diag_indices(k)] += 1e-2 * np.trace(gram) / k + 1e-12
            weights = np.linalg.solve(gram, np.ones(k))
            result[i] = (1 - part) * z + part * (weights / weights.sum()) @ corpus[near]
        return result

    return variant


VARIANTS: dict[str, Variant] = {
    "auto": as_they_are,
    "centred": centred,
    "centred, less 1 direction": less(1),
    "centred, less 3 directions": less(3),
    "whitened, p = 0.1": whitened(0.1),
    "whitened, p = 0.25": whitened(0.25),
    "whitened, p = 0.5": whitened(0.5),
    "128 dimensions": shortened(128),
    "256 dimensions": shortened(256),
    "512 dimensions": shortened(512),
    "dimensions that keep 99%": short_enough(0.99),
    "contrastive, 50 steps": contrastive(50),
    "contrastive, 400 steps": contrastive(400),
    "neighbours together, p = 0.25": neighbours_together(0.25),
    "neighbours together, p = 0.5": neighbours_together(0.5),
    "locally linear, a quarter": locally_linear(0.25),
    "locally linear, half": locally_linear(0.5),
}
TAUS = (0.1, 1.0, 10.0, 100.0)


def members_as(power: float | None, best_too: bool = False) -> Members:
    """Members but the best, or all, softly whitened by this power; 0 only centres, None leaves them as they are."""

    def prepared(estimate: Reliability, views: Mapping[str, Sequence[Matrix]]) -> dict[str, Matrix]:
        plain = power is None
        factors = scales(
            tuple((estimate.weights if plain else estimate.whitened_weights).tolist()), len(estimate.names)
        )
        result: dict[str, list[Matrix]] = {"corpus": [], "scored": []}
        for j, (X, Y) in enumerate(zip(views["corpus"], views["scored"], strict=True)):
            for part, Z in (("corpus", X), ("scored", Y)):
                if power is not None and (best_too or j in estimate.whitened):
                    values, axes = _axes(X - X.mean(axis=0))
                    ridged = (values + 1e-3 * values.mean()) ** (-power / 2)
                    Z = unit_rows(((Z - X.mean(axis=0)) @ axes) * ridged)
                result[part].append(factors[j] * Z)
        return {part: np.hstack(parts) for part, parts in result.items()}

    return prepared


def by_agreement(estimate: Reliability, views: Mapping[str, Sequence[Matrix]]) -> dict[str, Matrix]:
    """Weights of a factor model: the member that agrees most with the others is taken for the best."""
    X = views["corpus"]
    rows = np.arange(0, len(X[0]), max(1, len(X[0]) // 1500))
    pairs = np.array(sorted({(int(i), int(k)) for Z in X for i, k in zip(rows, _nearest(Z)[rows], strict=True)}))
    r = np.corrcoef([np.einsum("ij,ij->i", Z[pairs[:, 0]], Z[pairs[:, 1]]) for Z in X])
    _, vectors = np.linalg.eigh(r)
    trust = np.clip(np.abs(vectors[:, -1]) / np.abs(vectors[:, -1]).max() * 0.95, 0.05, 0.95)
    weights = tuple((trust / (1 - trust**2)).tolist())
    factors = scales(weights, len(X))
    print(estimate.names, "agreement", np.round(trust, 2), flush=True)
    return {part: np.hstack([f * Z for f, Z in zip(factors, one, strict=True)]) for part, one in views.items()}


MEMBERS: dict[str, Members] = {
    "weights by agreement alone": by_agreement,
    "auto's weights, nothing whitened": members_as(None),
    "auto, others only centred": members_as(0.0),
    "auto, others whitened by 0.1": members_as(0.1),
    "auto, others whitened by 0.5": members_as(0.5),
    "auto, the best whitened by 0.25, too": members_as(0.25, best_too=True),
}


def main(out: Path = Path("results")) -> None:
    names = ENSEMBLES[-1]
    pull([*names, "stsb"])
    dev, train = find_sts("stsb-dev"), distinct_sentences([find_sts("stsb-train")])
    store, encoders = ViewStore(wait=600), Ensemble(names).encoders
    texts = {"corpus": train, "scored": distinct_sentences([dev])}
    views = {
        part: {
            name: unit_rows(np.asarray(view, np.float64))
            for name, view in zip(names, store.embed_all(ListCorpus(sentences), encoders), strict=True)
        }
        for part, sentences in texts.items()
    }
    rows: dict[str, list[str]] = {name: [] for name in ("best member", "equal weights", *MEMBERS, *VARIANTS)}
    for ensemble in ENSEMBLES:
        alone = [_score(views["scored"][name], dev) for name in ensemble]
        best = Score(max(one.pearson for one in alone), max(one.spearman for one in alone))
        rows["best member"].append(str(best))
        rows["equal weights"].append(str(_score(np.hstack([views["scored"][name] for name in ensemble]), dev)))
        members = {part: [views[part][name] for name in ensemble] for part in texts}
        estimate = reliability(members["corpus"], sentences=train, names=ensemble)
        whole = members_as(POWER)(estimate, members)
        vectors = {name: prepare(estimate, members)["scored"] for name, prepare in MEMBERS.items()}
        for name, variant in VARIANTS.items():
            vectors[name] = variant(whole["corpus"], whole["scored"])
        for name, Z in vectors.items():
            rows[name].append(str(_score(Z, dev)))
            print("+".join(ensemble), name, rows[name][-1], flush=True)
    taus = _taus(views, train, dev, ENSEMBLES[0])
    headers = ["", *("+".join(one) for one in ENSEMBLES)]
    table = markdown_table(headers, [[name, *cells] for name, cells in rows.items()])
    facts = ", ".join(f"{key} {value}" for key, value in provenance().items())
    notes = [
        "Pearson's r / Spearman's rho, x 100, on STS-B dev alone (raw text).",
        f"Weights by reliability, found on the {len(train)} distinct sentences of STS-B train, without labels.",
        f"Made with {facts}.",
    ]
    taus_page = (
        "\n## Can tau be chosen without labels?\n\n"
        f"gcca with reliability weights on {'+'.join(ENSEMBLES[0])}, fitted on half of the corpus; consensus: the "
        "correlation, over pairs of near sentences of the other half, of its cosine with the mean of the members' "
        "standardised cosines.\n\n" + markdown_table(["tau", "consensus", "stsb-dev"], taus) + "\n"
    )
    head = "# Beside and on top of auto\n\nWritten by `python -m benchmarks.combinations`.\n\n"
    page = head + table + "\n\n" + "".join(f"- {note}\n" for note in notes) + taus_page
    write_atomically(out / "combinations.md", page.encode())


def _taus(
    views: dict[str, dict[str, Matrix]], train: list[str], dev: Dataset, ensemble: tuple[str, ...]
) -> list[list[str]]:
    """For every tau: the consensus of what it gives with the members, and its score."""
    half = np.random.default_rng(0).permutation(len(train))
    fitted_on, held_out = half[: len(half) // 2], half[len(half) // 2 :]
    corpus = [views["corpus"][name] for name in ensemble]
    weights = tuple(reliability(corpus, sentences=train, names=ensemble).weights.tolist())
    others = [X[held_out] for X in corpus]
    queries = np.arange(min(1500, len(held_out)))
    mean = np.asarray(sum(X[queries] @ X.T for X in others))
    mean[queries, queries] = -np.inf  # a sentence is no neighbour of its own
    near = np.argpartition(-mean, 5, axis=1)[:, :5]
    pairs = np.array([(i, j) for i, row in enumerate(near) for j in row])
    cosines = [np.einsum("ij,ij->i", X[pairs[:, 0]], X[pairs[:, 1]]) for X in others]
    target = np.asarray(sum((C - C.mean()) / C.std() for C in cosines))
    rows = []
    for tau in TAUS:
        meta = GCCA(tau=tau, weights=weights).fit([X[fitted_on] for X in corpus])
        Z = unit_rows(meta.transform(others).astype(np.float64))
        consensus = np.corrcoef(np.einsum("ij,ij->i", Z[pairs[:, 0]], Z[pairs[:, 1]]), target)[0, 1]
        score = _score(meta.transform([views["scored"][name] for name in ensemble]).astype(np.float64), dev)
        rows.append([f"{tau:g}", f"{consensus:.3f}", str(score)])
        print("tau", *rows[-1], flush=True)
    return rows


def _score(vectors: Matrix, dataset: Dataset) -> Score:
    """Of the vectors of its distinct sentences."""
    return evaluate(lambda _texts: vectors, dataset).score


def _nearest(U: Matrix) -> NDArray[np.int64]:
    """The nearest other row of every row, all of length one."""
    nearest = np.empty(len(U), np.int64)
    for start in range(0, len(U), 2000):
        cosines = U[start : start + 2000] @ U.T
        cosines[np.arange(len(cosines)), start + np.arange(len(cosines))] = -1
        nearest[start : start + 2000] = cosines.argmax(axis=1)
    return nearest


def _axes(X: Matrix) -> tuple[Matrix, Matrix]:
    """Variances, falling, and the directions [d, d] that have them."""
    values, axes = np.linalg.eigh(X.T @ X / len(X))
    return np.maximum(values[::-1], 0), axes[:, ::-1]


if __name__ == "__main__":
    main()
