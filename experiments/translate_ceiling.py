"""`python -m experiments.translate_ceiling VECTORS`: do non-linear maps find more than linear ones?

VECTORS is a `.npz` file of `X` and `Y` [n, d], two encoders' vectors of the same texts, and `P` and `Q` [q, d], their
vectors of queries; `--export` makes one from stored views. Maps are fitted on `--examples` texts: linear ones, kernel
machines, random features, and networks of several sizes trained on several losses, each at several strengths; as an
upper bound, each setting is chosen by the very figure that is shown. `--few` tries fewer settings, for a machine
without a GPU. Needs torch. Writes `translate-ceiling.md` and `.json`.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ensembed.support.provenance import provenance
from ensembed.support.text_tables import markdown_table
from experiments import write_results

SEARCHED = 10_000
"""Texts at the end of the file, which are searched and never fitted on."""
NEAREST = 10
QUERIES = 1000
LOSSES = ("cosines", "similarities", "contrast")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

Tensor: Any = torch.Tensor
Map = Callable[[Any], Any]


@dataclass(frozen=True)
class Effort:
    """The settings that are tried."""

    widths: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0)
    penalties: tuple[float, ...] = (0.003, 0.03, 0.3)
    rows: int = 20_000  # of kernels
    counts: tuple[int, ...] = (2048, 8192)
    hidden: tuple[int, ...] = (0, 512, 2048)
    layers: tuple[int, ...] = (1, 2)
    decays: tuple[float, ...] = (0.01, 0.1)
    drops: tuple[float, ...] = (0.0, 0.3)
    steps: int = 1200
    batch: int = 1024


FEW = Effort((1.0, 4.0), (0.1,), 5000, (2048,), (0, 512), (1,), (0.01,), (0.3,), 300, 512)
"""What a busy processor can do in some minutes."""
unit = torch.nn.functional.normalize


def export(corpus: Path, queries: Path, source: str, target: str, lines: int, out: Path) -> None:
    """Write vectors out of stored views, in half precision."""
    from ensembed.corpora import as_corpus
    from ensembed.models.opening import open_model
    from ensembed.views import ViewStore
    from experiments.translate_table import chosen_queries, embedded

    models, store = [open_model(source), open_model(target)], ViewStore()
    vectors = embedded(list(as_corpus(corpus))[:lines], models, store)
    vectors += embedded(chosen_queries(queries, QUERIES), models, store)
    half: dict[str, Any] = {name: rows.astype(np.float16) for name, rows in zip("XYPQ", vectors, strict=True)}
    np.savez(out, names=np.array([source, target]), **half)


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


def linear(x: Any, y: Any, _: Effort) -> Iterator[tuple[str, Map]]:  # noqa: ANN401 - tensors
    """Yield the linear maps of `ensembed translate`."""
    R = rotation(x, y)
    for strength, part in itertools.product((0.003, 0.03, 0.1), (0.0, 0.25, 0.5, 0.75, 1.0)):
        W = part * ridge(x, y, strength) + (1 - part) * R
        yield f"linear: ridge {strength:g}, part {part:g}", partial(affine, x.mean(0), y.mean(0), W)


def kernels(x: Any, y: Any, effort: Effort) -> Iterator[tuple[str, Map]]:  # noqa: ANN401 - tensors
    """Yield kernel ridge regressions, alone and on what the blended linear map leaves."""
    x, y = x[: effort.rows], y[: effort.rows]
    base = 0.5 * ridge(x, y, 0.03) + 0.5 * rotation(x, y)
    for width, penalty, over in itertools.product(effort.widths, effort.penalties, (False, True)):
        start: Map = partial(affine, x.mean(0), y.mean(0), base if over else torch.zeros_like(base))
        K = torch.exp(width * (x @ x.T - 1))
        C = torch.linalg.solve(K + penalty * torch.eye(len(x), device=x.device), y - start(x))
        name = f"kernel: width {width:g}, penalty {penalty:g}{', over linear' if over else ''}"
        yield name, partial(kernel, x, C, start, width)


def features(x: Any, y: Any, effort: Effort) -> Iterator[tuple[str, Map]]:  # noqa: ANN401 - tensors
    """Yield ridge regressions on random features beside the vector."""
    torch.manual_seed(0)
    for count, scale, penalty in itertools.product(effort.counts, (1.0, 3.0), (0.1, 1.0, 10.0)):
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


def networks(x: Any, y: Any, effort: Effort) -> Iterator[tuple[str, Map]]:  # noqa: ANN401 - tensors
    """Yield networks beside the blended linear map, trained on cosines, on similarities, or on telling texts apart."""
    base = 0.5 * ridge(x, y, 0.03) + 0.5 * rotation(x, y)
    for hidden, layers, loss, decay, drop in itertools.product(
        effort.hidden, effort.layers, LOSSES, effort.decays, effort.drops
    ):
        if not hidden and (layers > 1 or drop != effort.drops[0]):
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
        train(models, x, y, loss, decay, effort)
        models.eval()
        shape = f"{layers} x {hidden}" if hidden else "affine"
        name = f"network: {shape}, {loss}, decay {decay:g}, dropout {drop:g}"
        yield name, partial(summed, models)


def train(models: Any, x: Any, y: Any, loss: str, decay: float, effort: Effort) -> None:  # noqa: ANN401 - modules
    """Train with AdamW on random batches."""
    optimiser = torch.optim.AdamW(models.parameters(), lr=5e-4, weight_decay=decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, effort.steps)
    for _ in range(effort.steps):
        batch = torch.randint(len(x), (effort.batch,), device=x.device)
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


def recalls(x: Any, y: Any, texts: Any, wanted: Any, asked: Any, effort: Effort) -> Iterator[tuple[str, str, float]]:  # noqa: ANN401 - tensors
    """Yield family, setting and recall@10 of every map from x to y, on other texts, with real queries."""
    truth = (asked @ wanted.T).topk(NEAREST, dim=1).indices
    for family in (linear, kernels, features, networks):
        for name, apply in family(x, y, effort):
            with torch.no_grad():
                found = (asked @ unit(apply(texts), dim=1).T).topk(NEAREST, dim=1).indices
            yield family.__name__, name, float((found[:, :, None] == truth[:, None, :]).any(1).float().mean())


def main() -> None:
    """Fit all maps in both directions, and write what the best of each family finds."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("vectors", type=Path)
    parser.add_argument("--export", nargs=5, metavar=("CORPUS", "QUERIES", "SOURCE", "TARGET", "LINES"))
    parser.add_argument("--examples", type=int, action="append", default=[], help="texts to fit on, by default 5,000")
    parser.add_argument("--few", action="store_true", help="try few settings")
    parser.add_argument("--out", type=Path, default=Path("results"))
    chosen = parser.parse_args()
    if chosen.export:
        corpus, queries, source, target, lines = chosen.export
        export(Path(corpus), Path(queries), source, target, int(lines), chosen.vectors)
        return
    arrays = np.load(chosen.vectors)
    X, Y, P, Q = (unit(torch.from_numpy(arrays[name].astype(np.float32)).to(DEVICE), dim=1) for name in "XYPQ")
    first, second = arrays["names"].tolist()
    data: dict[str, dict[str, float]] = {}
    for examples in chosen.examples or [5000]:
        if examples + SEARCHED > len(X):
            parser.error(f"{examples} examples and {SEARCHED} texts to search are more than the {len(X)} there are")
        for pair, old, new, asked in ((f"{first} to {second}", X, Y, Q), (f"{second} to {first}", Y, X, P)):
            for family, name, recall in recalls(
                old[:examples],
                new[:examples],
                old[-SEARCHED:],
                new[-SEARCHED:],
                asked,
                FEW if chosen.few else Effort(),
            ):
                data.setdefault(f"{pair} | {examples:,} | {family}", {})[name] = recall
                print(f"{pair} | {examples} | {name} | {recall:.3f}", flush=True)
            write(chosen.out, data, chosen)


def write(out: Path, data: dict[str, dict[str, float]], chosen: argparse.Namespace) -> None:
    """Write the page and the data."""
    settings = f"{' '.join(f'--examples {count}' for count in chosen.examples)} {'--few' if chosen.few else ''}"
    command = " ".join(f"python -m experiments.translate_ceiling {chosen.vectors.name} {settings}".split())
    intro = (
        f"recall@10 among {SEARCHED:,} texts of the mixed corpus that no map was fitted on, with {QUERIES:,} queries "
        "of another source. Of each family the best of all its settings is shown, chosen by this very figure: an upper "
        "bound. `examples` is the number of texts that maps were fitted on, of kernels at most "
        f"{(FEW if chosen.few else Effort()).rows:,}. The linear family is that of `ensembed translate`."
    )
    headers = ["pair", "examples", "family", "the best", "recall@10", "settings tried"]
    rows = []
    for key, scores in data.items():
        top = max(scores, key=lambda name: scores[name])
        rows.append([*key.split(" | "), top, f"{scores[top]:.3f}", str(len(scores))])
    page = ["# Do non-linear maps find more?", "", intro, "", markdown_table(headers, rows), ""]
    page += [f"Written by `{command}`.", ""]
    facts = {"provenance": provenance(), "command": command, "searched": SEARCHED, "recall_10": data}
    write_results(out, "translate-ceiling", "\n".join(page), json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
