"""`python -m experiments.translate_ceiling VECTORS`: do non-linear maps find more than linear ones?

VECTORS is a `.npz` file of `X` and `Y` [n, d], two encoders' vectors of the same texts, and `P` and `Q` [q, d], their
vectors of queries; `--export` makes one from stored views. Maps are fitted on `--examples` texts: linear ones, maps of
regions, kernel machines, random features, the targets of the nearest examples, and networks of several sizes trained on
several losses, each at several strengths; as an upper bound, each setting is chosen by the very figure that is shown.
`--few` tries fewer settings, for a machine without a GPU; sizes given by `--curve` get a few of each family that can be
fitted on any number of texts. Also measured: what the old model's own lists have in common with the truth, and what a
map would have to explain to find 0.95. Needs torch. Writes `translate-ceiling.md` and `.json`.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ensembed.methods.encoder_map_fitting import apply_projection
from ensembed.methods.encoder_maps import LocalRidge
from ensembed.methods.meta import Projection
from ensembed.numerics.moments import Moments
from ensembed.numerics.regions import find_regions, nearest_region
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
    landmarks: int = 8192
    regions: tuple[int, ...] = (8, 32)
    near: tuple[int, ...] = (10, 50, 200)
    counts: tuple[int, ...] = (2048, 8192)
    hidden: tuple[int, ...] = (0, 512, 2048)
    layers: tuple[int, ...] = (1, 2)
    losses: tuple[str, ...] = LOSSES
    decays: tuple[float, ...] = (0.01, 0.1)
    drops: tuple[float, ...] = (0.0, 0.3)
    steps: int = 1200
    batch: int = 1024


FEW = Effort(
    widths=(1.0, 4.0),
    penalties=(0.03, 0.3),
    rows=4000,
    landmarks=3000,
    counts=(2048,),
    hidden=(0, 512, 1024),
    decays=(0.01,),
    drops=(0.3,),
    steps=400,
    batch=512,
)
"""What a busy processor can do in some minutes."""
CURVE = Effort(
    widths=(4.0,),
    penalties=(0.1,),
    rows=0,
    landmarks=2000,
    regions=(8,),
    near=(50,),
    counts=(),
    hidden=(512,),
    layers=(1,),
    losses=("similarities",),
    decays=(0.01,),
    drops=(0.3,),
    steps=300,
    batch=512,
)
"""What is tried with every number of examples of a learning curve."""
WANTED = 0.95
"""The recall@10 that was asked for."""
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


def blended(x: Any, y: Any) -> Map:  # noqa: ANN401 - tensors
    """Return the linear map that others begin with."""
    return partial(affine, x.mean(0), y.mean(0), 0.5 * ridge(x, y, 0.03) + 0.5 * rotation(x, y))


def regions(x: Any, y: Any, effort: Effort) -> Iterator[tuple[str, Map]]:  # noqa: ANN401 - tensors
    """Yield a ridge map for each region of the space."""
    X, pairs = x.cpu().numpy(), torch.hstack([x, y]).cpu().numpy()
    for count, own in itertools.product(effort.regions, (300.0, 1000.0)):
        centres = find_regions(X, count, 0)
        place = nearest_region(X, centres)
        moments = [Moments.of(pairs[place == k]) for k in range(count)]
        fitted = LocalRidge(0.03, own, count).solve(moments, X.shape[1], centres)

        def apply(rows: Any, fitted: Projection = fitted) -> Any:  # noqa: ANN401 - tensors
            return torch.from_numpy(apply_projection(fitted, rows.cpu().numpy())).to(rows.device)

        yield f"regions: {count}, own {own:g}", apply


def landmarks(x: Any, y: Any, effort: Effort) -> Iterator[tuple[str, Map]]:  # noqa: ANN401 - tensors
    """Yield kernel ridge regressions on all examples, in the span of some of them (Nyström), over a linear map."""
    start, some = blended(x, y), x[: effort.landmarks]
    rest = y - start(x)
    for width in effort.widths:
        K = torch.exp(width * (x @ some.T - 1))
        A, B = K.T @ K, K.T @ rest
        own = torch.exp(width * (some @ some.T - 1)) + 1e-4 * torch.eye(len(some), device=x.device)
        for penalty in effort.penalties:
            C = torch.linalg.solve(A + penalty * own, B)
            yield f"landmarks: width {width:g}, penalty {penalty:g}", partial(kernel, some, C, start, width)


def neighbours(x: Any, y: Any, effort: Effort) -> Iterator[tuple[str, Map]]:  # noqa: ANN401 - tensors
    """Yield what a linear map leaves on the nearest examples, added to it."""
    start = blended(x, y)
    rest = y - start(x)
    for count, part in itertools.product(effort.near, (0.5, 1.0)):

        def apply(rows: Any, count: int = count, part: float = part) -> Any:  # noqa: ANN401 - tensors
            made = [start(rows)]
            for block in rows.split(1000):
                near = (block @ x.T).topk(count, dim=1)
                weights = (10 * near.values).softmax(1)
                made.append((weights[:, :, None] * rest[near.indices]).sum(1))
            return made[0] + part * torch.cat(made[1:])

        yield f"neighbours: {count}, part {part:g}", apply


def kernels(x: Any, y: Any, effort: Effort) -> Iterator[tuple[str, Map]]:  # noqa: ANN401 - tensors
    """Yield kernel ridge regressions, alone and on what the blended linear map leaves."""
    if not effort.rows:
        return
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
        effort.hidden, effort.layers, effort.losses, effort.decays, effort.drops
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


FAMILIES = (linear, regions, landmarks, neighbours, kernels, features, networks)


@dataclass(frozen=True, eq=False)
class Search:
    """Texts of two models that no map was fitted on, and what the new model finds among its own vectors of them."""

    texts: Any
    wanted: Any
    asked: Any
    truth: Any

    @classmethod
    def of(cls, texts: Any, wanted: Any, asked: Any) -> Search:  # noqa: ANN401 - tensors
        """Search the new model's own vectors."""
        return cls(texts, wanted, asked, cls.hits(asked, wanted))

    @staticmethod
    def hits(asked: Any, texts: Any) -> Any:  # noqa: ANN401 - tensors
        """Return the nearest texts."""
        return (asked @ texts.T).topk(NEAREST, dim=1).indices

    def overlap(self, found: Any) -> float:  # noqa: ANN401 - tensors
        """Return recall@10."""
        return float((found[:, :, None] == self.truth[:, None, :]).any(1).float().mean())

    def recall(self, made: Any) -> float:  # noqa: ANN401 - tensors
        """Return the recall@10 of translated texts of length one."""
        return self.overlap(self.hits(self.asked, made))

    def explained(self, made: Any) -> float:  # noqa: ANN401 - tensors
        """Return the part of the variance of the wanted texts that translated ones of length one explain."""
        errors = (made - self.wanted).square().sum()
        return float(1 - errors / (self.wanted - self.wanted.mean(0)).square().sum())

    def needed(self, made: Any) -> float:  # noqa: ANN401 - tensors
        """Return what would have to be explained to find what is asked for: the truth is mixed in until it is found."""
        low, high = 0.0, 1.0
        for _ in range(10):
            part = (low + high) / 2
            found = self.recall(unit(made + part * (self.wanted - made), dim=1)) >= WANTED
            low, high = (low, part) if found else (part, high)
        return self.explained(unit(made + high * (self.wanted - made), dim=1))


@dataclass(frozen=True)
class Score:
    """What one map finds and explains."""

    pair: str
    examples: int
    family: str
    name: str
    recall: float
    explained: float


def scores(
    pair: str,
    x: Tensor,
    y: Tensor,
    search: Search,
    effort: Effort,
    family: Callable[..., Iterator[tuple[str, Map]]],
) -> Iterator[Score]:
    """Yield what every map of a family finds on other texts, with real queries."""
    for name, apply in family(x, y, effort):
        with torch.no_grad():
            made = unit(apply(search.texts), dim=1)
        score = Score(pair, len(x), family.__name__, name, search.recall(made), search.explained(made))
        print(f"{pair} | {len(x)} | {name} | {score.recall:.3f} | {score.explained:.3f}", flush=True)
        yield score


def main() -> None:
    """Fit all maps in both directions, and write what the best of each family finds."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("vectors", type=Path)
    parser.add_argument("--export", nargs=5, metavar=("CORPUS", "QUERIES", "SOURCE", "TARGET", "LINES"))
    parser.add_argument("--examples", type=int, default=5000, help="texts to fit on, by default 5,000")
    parser.add_argument("--curve", type=int, nargs="*", default=[], help="other numbers of texts to fit on")
    parser.add_argument("--few", action="store_true", help="try few settings")
    parser.add_argument("--out", type=Path, default=Path("results"))
    chosen = parser.parse_args()
    if chosen.export:
        corpus, queries, source, target, lines = chosen.export
        export(Path(corpus), Path(queries), source, target, int(lines), chosen.vectors)
        return
    arrays = np.load(chosen.vectors)
    X, Y, P, Q = (unit(torch.from_numpy(arrays[name].astype(np.float32)).to(DEVICE), dim=1) for name in "XYPQ")
    if (most := max([chosen.examples, *chosen.curve])) + SEARCHED > len(X):
        parser.error(f"{most} examples and {SEARCHED} texts to search are more than the {len(X)} there are")
    first, second = arrays["names"].tolist()
    directions = []
    bounds: dict[str, dict[str, float]] = {}
    for pair, old, new, asking, asked in (
        (f"{first} to {second}", X, Y, P, Q),
        (f"{second} to {first}", Y, X, Q, P),
    ):
        search = Search.of(old[-SEARCHED:], new[-SEARCHED:], asked)
        directions.append((pair, old, new, search))
        made = unit(blended(old[: chosen.examples], new[: chosen.examples])(search.texts), dim=1)
        own = search.overlap(search.hits(asking, search.texts))
        bounds[pair] = {"own lists": own, "explained": search.explained(made), "needed": search.needed(made)}
        print(pair, bounds[pair], flush=True)
    done: list[Score] = []
    # Families outside: if it is stopped, both directions have been tried alike.
    sizes = [(count, CURVE) for count in chosen.curve] + [(chosen.examples, FEW if chosen.few else Effort())]
    for count, effort in sizes:
        for family in FAMILIES:
            for pair, old, new, search in directions:
                done += scores(pair, old[:count], new[:count], search, effort, family)
            write(chosen, done, bounds)


def write(chosen: argparse.Namespace, done: list[Score], bounds: dict[str, dict[str, float]]) -> None:
    """Write the page and the data."""
    curve = f"--curve {' '.join(map(str, chosen.curve))} " if chosen.curve else ""
    settings = f"--examples {chosen.examples} {curve}{'--few' if chosen.few else ''}"
    command = f"python -m experiments.translate_ceiling {chosen.vectors.name} {settings}".strip()
    effort = FEW if chosen.few else Effort()
    intro = (
        f"recall@10 among {SEARCHED:,} texts of the mixed corpus that no map was fitted on, with {QUERIES:,} queries "
        f"of another source. Maps are fitted on {chosen.examples:,} texts, kernel machines on {effort.rows:,}. Of each "
        "family the best of all its settings is shown, chosen by this very figure: an upper bound. The linear family "
        "is that of `ensembed translate`. `explained` is the part of the variance of the new model's vectors."
    )
    page = ["# Do non-linear maps find more?", "", intro, "", family_table(done, chosen.examples), ""]
    page += ["## What finding 0.95 would take", "", *needs(bounds, done), ""]
    if chosen.curve:
        page += ["## More examples", "", "recall@10 of the best linear map and of the best of the others.", ""]
        page += [curve_table(done, [*chosen.curve, chosen.examples]), ""]
    page += [f"Written by `{command}`.", ""]
    facts = {"provenance": provenance(), "command": command, "searched": SEARCHED, "bounds": bounds}
    facts["scores"] = [asdict(score) for score in done]
    write_results(chosen.out, "translate-ceiling", "\n".join(page), json.dumps(facts, indent=1) + "\n")


def best(done: list[Score], **fields: object) -> Score | None:
    """Return the map that finds most of those that have these fields."""
    some = [score for score in done if all(getattr(score, key) == value for key, value in fields.items())]
    return max(some, key=lambda score: score.recall, default=None)


def family_table(done: list[Score], examples: int) -> str:
    """Return the best of every family."""
    rows = []
    tried = Counter((score.pair, score.examples, score.family) for score in done)
    for pair, family in itertools.product(dict.fromkeys(score.pair for score in done), FAMILIES):
        top = best(done, pair=pair, examples=examples, family=family.__name__)
        if top:
            count = tried[pair, examples, top.family]
            rows.append([pair, top.family, top.name, f"{top.recall:.3f}", f"{top.explained:.2f}", str(count)])
    return markdown_table(["pair", "family", "the best", "recall@10", "explained", "settings tried"], rows)


def curve_table(done: list[Score], counts: list[int]) -> str:
    """Return the best linear and the best other map for every number of examples."""
    rows = []
    for pair, count in itertools.product(dict.fromkeys(score.pair for score in done), sorted(set(counts))):
        own = [score for score in done if score.pair == pair and score.examples == count]
        straight = best(own, family="linear")
        bent = best([score for score in own if score.family != "linear"])
        if straight and bent:
            rows.append([pair, f"{count:,}", f"{straight.recall:.3f}", f"{bent.recall:.3f}", bent.name])
    return markdown_table(["pair", "examples", "linear", "others", "the best of these"], rows)


def needs(bounds: dict[str, dict[str, float]], done: list[Score]) -> Iterator[str]:
    """Say what a map would have to explain, and what the best one does."""
    for pair, facts in bounds.items():
        own = [score for score in done if score.pair == pair]
        most = max((score.explained for score in own), default=facts["explained"])
        top = best(own)
        yield (
            f"- {pair}: the ten nearest of the two models have {facts['own lists']:.3f} in common. To find {WANTED}, "
            f"a translation has to explain {facts['needed']:.3f} of the variance of the new model's vectors (measured "
            f"with the truth mixed into the linear map's). Of {len(own)} maps none explains more than {most:.2f}, and "
            f"none finds more than {top.recall if top else 0.0:.3f}."
        )


if __name__ == "__main__":
    main()
