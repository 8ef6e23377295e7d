"""`python -m experiments.translate_ceiling VECTORS`: do non-linear maps find more than linear ones?

VECTORS is a `.npz` file of `X` and `Y` [n, d], two encoders' vectors of the same texts, and `Q` [q, d'], the second
one's vectors of queries; `--export` makes one from stored views. Maps are fitted on 5,000 texts: linear ones, kernel
machines, random features, and networks of several sizes trained on several losses, each at several strengths; as an
upper bound, each setting of the non-linear ones is chosen by the very figure that is shown. Also with all texts but the
searched ones as examples. Needs torch, and uses a GPU if there is one. Writes `translate-ceiling.md` and `.json`.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

ANCHORS = 5000
SEARCHED = 10_000
"""Texts at the end of the file, which are searched and never fitted on."""
NEAREST = 10
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

Tensor: Any = torch.Tensor
Map = Callable[[Any], Any]
unit = torch.nn.functional.normalize


def export(corpus: Path, queries: Path, source: str, target: str, rows: int, out: Path) -> None:
    """Write vectors out of stored views, in half precision."""
    from ensembed.corpora import as_corpus
    from ensembed.models.opening import open_model
    from ensembed.views import ViewStore

    store, (given, wanted) = ViewStore(), (open_model(source), open_model(target))
    texts, asked = as_corpus(corpus), as_corpus(queries)
    vectors = {
        "X": store.embed(texts, given)[:rows],
        "Y": store.embed(texts, wanted)[:rows],
        "Q": store.embed(asked, wanted)[:],
    }
    half: dict[str, Any] = {name: np.asarray(rows, np.float16) for name, rows in vectors.items()}
    np.savez(out, **half)


def ridge(x: Any, y: Any, strength: float) -> Any:  # noqa: ANN401 - tensors
    """Return the coefficients of centred ridge regression."""
    a, b = x - x.mean(0), y - y.mean(0)
    covariance = a.T @ a / len(a)
    penalty = strength * covariance.diagonal().mean() * torch.eye(x.shape[1], device=x.device)
    return torch.linalg.solve(covariance + penalty, a.T @ b / len(a))


def rotation(x: Any, y: Any) -> Any:  # noqa: ANN401 - tensors
    """Return the best rotation and factor."""
    a, b = x - x.mean(0), y - y.mean(0)
    U, S, Vt = torch.linalg.svd(a.T @ b, full_matrices=False)
    return U @ Vt * (S.sum() / torch.trace(U.T @ a.T @ a @ U))


def affine(origin: Any, goal: Any, W: Any, rows: Any) -> Any:  # noqa: ANN401 - tensors
    """Return rows under a linear map between two means."""
    return goal + (rows - origin) @ W


def kernel(x: Any, C: Any, start: Map, width: float, rows: Any) -> Any:  # noqa: ANN401 - tensors
    """Return rows under a kernel regression on top of another map."""
    return start(rows) + torch.exp(width * (rows @ x.T - 1)) @ C


def on_features(goal: Any, W: Any, make: Map, centre: Any, rows: Any) -> Any:  # noqa: ANN401 - tensors
    """Return rows under a linear map of their features."""
    return goal + (make(rows) - centre) @ W


def summed(models: Any, rows: Any) -> Any:  # noqa: ANN401 - tensors
    """Return the sum of what networks make of rows."""
    return sum(model(rows) for model in models)


def linear(x: Any, y: Any) -> Iterator[tuple[str, Map]]:  # noqa: ANN401 - tensors
    """Yield the linear maps of `ensembed translate`."""
    R = rotation(x, y)
    for strength, part in itertools.product((0.003, 0.03, 0.1), (0.0, 0.25, 0.5, 0.75, 1.0)):
        W = part * ridge(x, y, strength) + (1 - part) * R
        yield f"linear: ridge {strength:g}, part {part:g}", partial(affine, x.mean(0), y.mean(0), W)


def kernels(x: Any, y: Any) -> Iterator[tuple[str, Map]]:  # noqa: ANN401 - tensors
    """Yield kernel ridge regressions, alone and on what the blended linear map leaves."""
    x, y = x[:20_000], y[:20_000]
    base = 0.5 * ridge(x, y, 0.03) + 0.5 * rotation(x, y)
    for width, penalty, over in itertools.product((0.5, 1.0, 2.0, 4.0), (0.003, 0.03, 0.3), (False, True)):
        start: Map = partial(affine, x.mean(0), y.mean(0), base if over else torch.zeros_like(base))
        K = torch.exp(width * (x @ x.T - 1))
        C = torch.linalg.solve(K + penalty * torch.eye(len(x), device=x.device), y - start(x))
        name = f"kernel: width {width:g}, penalty {penalty:g}{', over linear' if over else ''}"
        yield name, partial(kernel, x, C, start, width)


def features(x: Any, y: Any) -> Iterator[tuple[str, Map]]:  # noqa: ANN401 - tensors
    """Yield ridge regressions on random features beside the vector."""
    torch.manual_seed(0)
    for count, scale, penalty in itertools.product((2048, 8192), (1.0, 3.0), (0.1, 1.0, 10.0)):
        R, b = torch.randn(x.shape[1], count, device=x.device) * scale, torch.rand(count, device=x.device) * 2 - 1
        mean = x.mean(0)

        def make(rows: Any, R: Any = R, b: Any = b, count: int = count, mean: Any = mean) -> Any:  # noqa: ANN401 - tensors
            return torch.hstack([torch.tanh((rows - mean) @ R + b) / count**0.5, rows - mean])

        F = make(x)
        centre = F.mean(0)
        A = (F - centre).T @ (F - centre) + penalty * torch.eye(F.shape[1], device=x.device)
        W = torch.linalg.solve(A, (F - centre).T @ (y - y.mean(0)))
        name = f"random features: {count}, scale {scale:g}, penalty {penalty:g}"
        yield name, partial(on_features, y.mean(0), W, make, centre)


def networks(x: Any, y: Any) -> Iterator[tuple[str, Map]]:  # noqa: ANN401 - tensors
    """Yield networks beside the blended linear map, trained on cosines, on similarities, or on telling texts apart."""
    base = 0.5 * ridge(x, y, 0.03) + 0.5 * rotation(x, y)
    for hidden, layers, loss, decay, drop in itertools.product(
        (0, 512, 2048), (1, 2), ("cosines", "similarities", "contrast"), (0.01, 0.1), (0.0, 0.3)
    ):
        if not hidden and (layers > 1 or drop):
            continue
        torch.manual_seed(0)
        first = torch.nn.Linear(*base.shape, device=x.device)
        with torch.no_grad():
            first.weight.copy_(base.T)
            first.bias.copy_(y.mean(0) - x.mean(0) @ base)
        parts: list[Any] = []
        width = x.shape[1]
        for _ in range(layers if hidden else 0):
            parts += [torch.nn.Linear(width, hidden), torch.nn.GELU(), torch.nn.Dropout(drop)]
            width = hidden
        bent = torch.nn.Sequential(*parts, torch.nn.Linear(width, y.shape[1])).to(x.device)
        torch.nn.init.zeros_(bent[-1].weight)
        models = torch.nn.ModuleList([first, bent] if hidden else [first])
        train(models, x, y, loss, decay)
        models.eval()
        shape = f"{layers} x {hidden}" if hidden else "affine"
        name = f"network: {shape}, {loss}, decay {decay:g}, dropout {drop:g}"
        yield name, partial(summed, models)


def train(models: Any, x: Any, y: Any, loss: str, decay: float, steps: int = 1200) -> None:  # noqa: ANN401 - modules
    """Train with AdamW on random batches."""
    optimiser = torch.optim.AdamW(models.parameters(), lr=5e-4, weight_decay=decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        batch = torch.randint(len(x), (1024,), device=x.device)
        made, wanted = unit(sum(model(x[batch]) for model in models), dim=1), y[batch]
        error = (1 - (made * wanted).sum(1)).mean()
        scores, true = 20 * wanted @ made.T, 20 * wanted @ wanted.T
        if loss == "similarities":
            error = error + torch.nn.functional.kl_div(scores.log_softmax(1), true.softmax(1), reduction="batchmean")
        elif loss == "contrast":
            error = error + torch.nn.functional.cross_entropy(scores, torch.arange(len(batch), device=x.device))
        optimiser.zero_grad()
        error.backward()
        optimiser.step()
        schedule.step()


def main() -> None:
    """Fit all maps, and write what the best of each family finds."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("vectors", type=Path)
    parser.add_argument("--export", nargs=5, metavar=("CORPUS", "QUERIES", "SOURCE", "TARGET", "ROWS"))
    parser.add_argument("--out", type=Path, default=Path("results"))
    chosen = parser.parse_args()
    if chosen.export:
        corpus, queries, source, target, rows = chosen.export
        export(Path(corpus), Path(queries), source, target, int(rows), chosen.vectors)
        return
    arrays = np.load(chosen.vectors)
    lines, data = [], {}
    for pair, names in (("to the second", "XYQ"), ("to the first", "YX")):
        tensors = [unit(torch.from_numpy(arrays[name].astype(np.float32)).to(DEVICE), dim=1) for name in names]
        X, Y = tensors[:2]
        texts, truth_rows = X[-SEARCHED:], Y[-SEARCHED:]
        asked = tensors[2] if len(tensors) > 2 else truth_rows[:1000]
        known = len(X) - SEARCHED

        def hits(rows: Any, asked: Any = asked, own: bool = len(tensors) < 3) -> Any:  # noqa: ANN401 - tensors
            scores = asked @ unit(rows, dim=1).T
            if own:
                scores.fill_diagonal_(-2)
            return scores.topk(NEAREST, dim=1).indices

        truth = hits(truth_rows)
        for examples in (ANCHORS, known):
            x, y = X[:examples], Y[:examples]
            for family in (linear, kernels, features, networks):
                scores: dict[str, float] = {}
                for name, apply in family(x, y):
                    with torch.no_grad():
                        found = hits(apply(texts))
                    scores[name] = float((found[:, :, None] == truth[:, None, :]).any(1).float().mean())
                top = max(scores, key=lambda name: scores[name])
                line = [pair, f"{examples:,}", top, f"{scores[top]:.3f}", str(len(scores))]
                print(*line, sep=" | ", flush=True)
                lines.append(line)
                data[f"{pair}, {examples}, {family.__name__}"] = scores
                write(chosen.out, lines, data)


def write(out: Path, lines: list[list[str]], data: dict[str, dict[str, float]]) -> None:
    """Write the page and the data."""
    intro = (
        f"recall@10 among {SEARCHED:,} texts that no map was fitted on. Of each family the best of all its settings is "
        "shown, chosen by this very figure: an upper bound. Queries to the second encoder are of another source; "
        "to the first, they are 1,000 of the texts themselves. `examples` is the number of texts that maps were fitted "
        "on (of kernels at most 20,000)."
    )
    headers = ["map", "examples", "the best", "recall@10", "settings tried"]
    table = ["| " + " | ".join(cells) + " |" for cells in (headers, ["---"] * len(headers), *lines)]
    page = ["# Do non-linear maps find more?", "", intro, "", *table, ""]
    page += ["Written by `python -m experiments.translate_ceiling vectors.npz`.", ""]
    out.mkdir(exist_ok=True)
    (out / "translate-ceiling.md").write_text("\n".join(page))
    (out / "translate-ceiling.json").write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    main()
