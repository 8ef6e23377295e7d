"""10,000 sentences of the STS tasks with MiniLM on the CPU: ours, sentence-transformers, plain onnxruntime."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.st_peer import open_peer
from benchmarks.texts import news
from benchmarks.timing import Comparison, Section, Table, best_in_turn, seconds
from ensembed.encoders import open_encoder
from ensembed.errors import EnsembedError
from ensembed.fetch.catalog import require
from ensembed.fetch.fetcher import pull
from ensembed.numerics.row_matrices import unit_rows
from ensembed.sts import evaluate
from ensembed.sts.find import find_available, find_sts
from ensembed.support.machine import available_cores

BATCH_SIZES = (16, 32, 64, 128, 256)
_LAYERS, _WIDTH, _INNER = 6, 384, 1536


def run(count: int = 10_000, repeats: int = 2, trial: int = 1000) -> Section:
    """All in turn; the peer's best batch size is found before, on a part of the sentences."""
    pull(["minilm", "minilm-int8", "stsb"])
    texts = sts_sentences(count)
    ours, small = open_encoder("minilm"), open_encoder("minilm-int8")
    plain, lengths = _plain(texts)
    with tempfile.TemporaryDirectory(prefix="ensembed-bench-") as folder:
        peer = open_peer(Path(folder))
        part = texts[:trial]
        for encode in (ours.encode, small.encode, lambda texts: peer(texts, 32)):
            encode(part[:64])
        trials = best_in_turn([partial(peer, part, size) for size in BATCH_SIZES], 2)
        size = BATCH_SIZES[int(np.argmin(trials))]
        cosine = _least_cosine(ours.encode(part), peer(part, size))
        if cosine < 0.9999:
            raise AssertionError(f"the least cosine to the peer's vectors is {cosine}: not the same model")
        ways: list[Callable[[], object]] = [
            partial(ours.encode, texts),
            partial(small.encode, texts),
            partial(peer, texts, size),
            plain,
        ]
        best = best_in_turn(ways, repeats)
    flops, rate = _flops(lengths), _product_rate()
    floor = flops / rate
    scores = [100 * evaluate(encoder.encode, find_sts("stsb-dev")).score.pearson for encoder in (ours, small)]
    st, ort = f"sentence-transformers, batches of {size}", "plain onnxruntime, sorted batches of 32"
    what = f"MiniLM, {len(texts):,} sentences, "
    names = ["ours, float32", "ours, int8", st, ort]
    return Section(
        "Encoding",
        [
            Comparison(what + "float32", st, best[0], best[2], "<= 0.50", f"{floor / best[0]:.0%} of the floor"),
            Comparison(what + "int8", st, best[1], best[2], "<= 0.33"),
            Comparison(what + "float32", ort, best[0], best[3], "< 1"),
        ],
        [
            Table(
                "Sentences per second:",
                ["way", "sentences/s"],
                [[name, f"{len(texts) / s:,.0f}"] for name, s in zip(names, best, strict=True)]
                + [["floor in float32", f"{len(texts) / floor:,.0f}"]],
            )
        ],
        [
            f"{available_cores()} cores, {flops / len(texts) / 1e9:.2f} GFLOP a sentence.",
            f"The floor is the time of as many operations in a bare float32 product, at {rate / 1e9:.0f} GFLOP/s.",
            f"The smallest cosine to sentence-transformers' vectors is {cosine:.6f}.",
            f"STS-B dev, Pearson: {scores[0]:.2f} in float32, {scores[1]:.2f} in int8 (allowed difference: 0.2).",
        ],
        {"seconds": dict(zip(names, best, strict=True)), "floor_s": floor, "stsb_dev": scores, "batch_size": size},
    )


def sts_sentences(count: int) -> list[str]:
    """Distinct sentences of the STS test sets that are here, in mixed order; lines of news where they are too few."""
    try:
        parts = [part for dataset in find_available() for part in dataset.parts]
    except EnsembedError:
        parts = []
    found = list(dict.fromkeys(text for part in parts for text in (*part.sentences1, *part.sentences2)))
    if len(found) < count:
        return news(count)
    random.Random(0).shuffle(found)  # noqa: S311 - no secret
    return found[:count]


def _plain(texts: list[str]) -> tuple[Callable[[], object], NDArray[np.int64]]:
    """What a user of onnxruntime writes: all sentences sorted by length, 32 at a time, and their numbers of tokens."""
    import onnxruntime
    from tokenizers import Tokenizer

    folder = require("minilm")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(256)
    tokenizer.no_padding()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = available_cores()
    session = onnxruntime.InferenceSession(folder / "model.onnx", options, providers=["CPUExecutionProvider"])

    def encode() -> list[NDArray[Any]]:
        encodings = sorted(tokenizer.encode_batch_fast(texts), key=lambda encoding: len(encoding.ids))
        result = []
        for start in range(0, len(encodings), 32):
            batch = encodings[start : start + 32]
            ids = np.zeros((len(batch), len(batch[-1].ids)), np.int64)
            mask = np.zeros_like(ids)
            for i, encoding in enumerate(batch):
                ids[i, : len(encoding.ids)] = encoding.ids
                mask[i, : len(encoding.ids)] = 1
            feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
            hidden = session.run(None, feeds)[0]
            result.append((hidden * mask[:, :, None]).sum(axis=1) / mask.sum(axis=1, keepdims=True))
        return result

    return encode, np.array([len(encoding.ids) for encoding in tokenizer.encode_batch_fast(texts)])


def _flops(lengths: NDArray[np.int64]) -> float:
    """Of the matrix products of MiniLM, without any padding."""
    dense = 2 * _LAYERS * (4 * _WIDTH * _WIDTH + 2 * _WIDTH * _INNER)
    attention = 4 * _LAYERS * _WIDTH
    return float(dense * lengths.sum() + attention * (lengths.astype(np.float64) ** 2).sum())


def _product_rate(size: int = 2048) -> float:
    """Floating-point operations per second of a large float32 product on all cores."""
    A = np.random.default_rng(0).standard_normal((size, size), np.float32)
    return 2 * size**3 / min(seconds(partial(np.matmul, A, A)) for _ in range(10))


def _least_cosine(X: NDArray[Any], Y: NDArray[Any]) -> float:
    return float(np.einsum("ij,ij->i", unit_rows(X), unit_rows(Y)).min())
