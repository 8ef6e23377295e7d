"""What a hundred million or a thousand million sentences would take: a cost model made of measured figures.

    python -m benchmarks.scaling [--cores 1024] [--gpus 32] [--core-hour 0.04] [--gpu-hour 3] …

Prints the tables of docs/guides/scaling.md, with other assumptions if you like; `python -m benchmarks scaling` writes
them
there. Rates are those of results/bench.json (one machine, measured) and
results/bench-workers.json (Ray, 1 to 16 workers, measured); prices and bandwidths are assumptions, and options.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from benchmarks import results
from benchmarks.timing import Section, Table
from benchmarks.workers import efficiency
from ensembed.engines.ray.moment_tasks import block_count

RESULTS = Path("results")
# Bytes of the index while it is made, and of a sentence: measured in ensembed/corpora/corpus.py and on lines of news.
INDEX_BYTES, TEXT_BYTES = 44, 120
FLOAT = {"float32": 4, "float16": 2}
SIZES = (100_000_000, 1_000_000_000)


@dataclass(frozen=True)
class Assumptions:
    """What was not measured: the cluster and its prices."""

    cores: int = 1024
    gpus: int = 32
    store_gb_s: float = 20.0  # what all readers and writers of the shared store get together
    network_gb_s: float = 1.25  # of one node: 10 Gbit/s
    core_hour: float = 0.04
    gpu_hour: float = 3.0
    store_gb_month: float = 0.023


@dataclass(frozen=True)
class Rates:
    """What one core, or one GPU, was measured to do.

    Attributes:
        encode: sentences per second of each member, on one core.
        encode_gpu: MiniLM on one GPU.
        index: sentences per second of the pass over the corpus, which the driver makes alone.
        product: multiplications and additions per second of a core in the moments' products.
        solve: seconds of GCCA from moments on two cores, by D (d = 256).
        efficiency: what is left of one worker's rate when all cores of a machine work, on Ray.
    """

    encode: dict[str, float]
    encode_gpu: float
    index: float
    product: float
    solve: dict[int, float]
    efficiency: float


@dataclass(frozen=True)
class Stage:
    """One stage: seconds, what they are spent on, and what goes over the network in GB."""

    name: str
    seconds: float
    limit: str
    network_gb: float
    core_hours: float = 0.0
    gpu_hours: float = 0.0


def rates(folder: Path = RESULTS) -> Rates:
    """Read what was measured."""
    areas = json.loads((folder / "bench.json").read_text())["areas"]
    workers = json.loads((folder / "bench-workers.json").read_text())
    members, cores = areas["ensemble"]["data"]["members"], areas["ensemble"]["data"]["cores"]
    [moments] = [one for one in areas["moments"]["comparisons"] if "302,000" in one["what"]]
    growth = {line["series"]: line["points"] for line in areas["solve"]["data"]["growth"]}
    return Rates(
        encode={name: 2048 / seconds / cores for name, seconds in members.items()},
        encode_gpu=workers["gpu"]["sentences/s"],
        index=workers["index"]["sentences/s"],
        product=302_000 * 2_136**2 / moments["ours_s"] / cores,
        solve={int(D): seconds for D, seconds, _ in growth["gcca"]},
        efficiency=efficiency(workers["workers"]["runs"]),
    )


def plan(n: int, members: dict[str, int], of: Rates, on: Assumptions, *, gpu: bool, dtype: str) -> list[Stage]:
    """The stages of embedding and fitting n sentences with members of these dimensions."""
    D = sum(members.values())
    views = n * D * FLOAT[dtype] / 1e9
    text = n * TEXT_BYTES / 1e9
    index = n / of.index
    stages = [Stage("index of the corpus", index, "the driver, one core", text, index / 3600)]
    if gpu:
        work = n * len(members) / of.encode_gpu / on.gpus
        encode, unit = work, {"gpu_hours": work * on.gpus / 3600}
    else:
        seconds = sum(n / of.encode[name] for name in members) / of.efficiency
        encode, unit = seconds / on.cores, {"core_hours": seconds / 3600}
    store = views / on.store_gb_s
    limit = "the encoders" if encode >= store else "the store"
    stages.append(Stage("embedding", max(encode, store), limit, text * len(members) + views, **unit))
    multiply = n * D**2 / of.product / of.efficiency
    limit = "the products" if multiply / on.cores >= store else "the store"
    cores = -(-D // 1024)  # of one task
    blocks = block_count(n, D, max(on.cores // cores, 1), cores)
    merge = math.ceil(math.log2(max(blocks, 2))) * 8 * D**2 / 1e9 / on.network_gb_s
    travels = views + blocks * 8 * D**2 / 1e9
    stages.append(Stage("moments", max(multiply / on.cores, store) + merge, limit, travels, multiply / 3600))
    solve = solved(D, of)
    stages.append(Stage("eigenproblem, d = 256", solve, "one machine of two cores", 0.0, 2 * solve / 3600))
    return stages


def solved(D: int, of: Rates) -> float:
    """Seconds of the eigenproblem: between measured sizes a power law, outside of them that of the nearest two."""
    sizes = sorted(of.solve)
    upper = next((i for i, size in enumerate(sizes) if size >= D and i), len(sizes) - 1)
    low, high = sizes[upper - 1], sizes[upper]
    slope = math.log(of.solve[high] / of.solve[low]) / math.log(high / low)
    return float(of.solve[low] * (D / low) ** slope)


def run(on: Assumptions | None = None) -> Section:
    """The plans of docs/guides/scaling.md."""
    on, of = on or Assumptions(), rates()
    wide = {f"member {j}": 1024 for j in range(10)}
    small = {"minilm": 384, "use-lite": 512, "wordllama": 256}
    tables = [
        _table(f"{n:,} sentences, {', '.join(small)} (D = 1,152), {on.cores:,} cores", n, small, of, on, gpu=False)
        for n in SIZES
    ]
    tables.append(
        _table(
            f"{SIZES[-1]:,} sentences, ten members of 1,024 (D = 10,240), {on.gpus} GPUs",
            SIZES[-1],
            wide,
            of,
            on,
            gpu=True,
        )
    )
    rows = [row for D in (1152, 10240) for n in SIZES for row in _storage(n, D, on)]
    tables.append(Table("Views on disk", ["sentences", "D", "numbers", "TB", "a month"], rows))
    assumed = ", ".join(f"{field.name.replace('_', ' ')} {getattr(on, field.name):g}" for field in fields(on))
    return Section(
        "What large corpora cost",
        tables=tables,
        notes=[
            "Estimated from measured rates of single machines, not measured at this size.",
            f"Assumed: {assumed}; a sentence has {TEXT_BYTES} bytes.",
            "A member on a GPU is assumed to be as fast as MiniLM on an H200; the moments are computed on the cores.",
        ],
    )


def _table(title: str, n: int, members: dict[str, int], of: Rates, on: Assumptions, *, gpu: bool) -> Table:
    """A plan with its sum and its price."""
    stages = plan(n, members, of, on, gpu=gpu, dtype="float32")
    rows = [
        [one.name, duration(one.seconds), one.limit, f"{one.network_gb:,.0f}", f"${_price(one, on):,.2f}"]
        for one in stages
    ]
    total, price = sum(one.seconds for one in stages), sum(_price(one, on) for one in stages)
    rows.append(["all", duration(total), "", f"{sum(one.network_gb for one in stages):,.0f}", f"${price:,.2f}"])
    return Table(title, ["stage", "time", "limited by", "network, GB", "money"], rows)


def _storage(n: int, D: int, on: Assumptions) -> list[list[str]]:
    """Disk of the views, by the type of their numbers."""
    sizes = {dtype: n * D * size / 1e9 for dtype, size in FLOAT.items()}
    return [
        [f"{n:,}", f"{D:,}", dtype, f"{gb / 1e3:,.2f}", f"${gb * on.store_gb_month:,.0f}"]
        for dtype, gb in sizes.items()
    ]


def duration(seconds: float) -> str:
    """A time for a person.

    Example:
        >>> duration(90), duration(5400), duration(200_000)
        ('90 s', '1.5 h', '2.3 days')
    """
    if seconds < 300:
        return f"{seconds:,.0f} s" if seconds >= 1 else f"{seconds:.2f} s"
    if seconds < 5000:
        return f"{seconds / 60:,.0f} min"
    return f"{seconds / 3600:,.1f} h" if seconds < 100_000 else f"{seconds / 86400:,.1f} days"


def _price(stage: Stage, on: Assumptions) -> float:
    return stage.core_hours * on.core_hour + stage.gpu_hours * on.gpu_hour


def assumptions(arguments: list[str] | None = None) -> Assumptions:
    """From the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=(__doc__ or "").splitlines()[0])
    for field in fields(Assumptions):
        default: Any = field.default
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=type(default), default=default)
    return Assumptions(**vars(parser.parse_args(arguments)))


if __name__ == "__main__":
    print(results.text(results.record(run(assumptions()), {})))
