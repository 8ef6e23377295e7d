"""An inbox in which 40% of the messages repeat others: each distinct one is encoded once."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.st_peer import open_peer
from benchmarks.texts import inbox
from benchmarks.timing import Comparison, Section, best_in_turn
from ensembed.encoders import Encoder, open_encoder
from ensembed.fetch.fetcher import pull

NAME = "minilm"
_CHUNK = 512
# Among the best on two cores; `benchmarks/encode.py` looks for the best one.
_BATCH = 64


def run(messages: int = 2048, repeats: int = 3) -> Section:
    """Ours against itself made to encode every message, and against sentence-transformers with the same weights.

    Args:
        messages: how many.
        repeats: runs of each.
    """
    pull([NAME])
    texts = inbox(messages)
    encoder = open_encoder(NAME)
    distinct = len(set(texts))
    share = distinct / len(texts) + 0.05
    with tempfile.TemporaryDirectory(prefix="ensembed-bench-") as folder:
        peer = open_peer(Path(folder))
        peers: dict[str, tuple[Callable[[list[str]], object], str]] = {
            "the same encoder, every message": (partial(_every, encoder), f"<= {share:.2f}"),
            f"sentence-transformers, batches of {_BATCH}": (lambda texts: peer(texts, _BATCH), f"<= {share / 2:.2f}"),
        }
        assert np.allclose(encoder.encode(texts), _every(encoder, texts), atol=1e-5)
        best = best_in_turn(
            [partial(encode, texts) for encode in (encoder.encode, *(encode for encode, _ in peers.values()))], repeats
        )
    what = f"{NAME}, {len(texts):,} messages, {distinct:,} distinct"
    return Section(
        "An inbox with repeats",
        [
            Comparison(what, name, best[0], seconds, target)
            for (name, (_, target)), seconds in zip(peers.items(), best[1:], strict=True)
        ],
        notes=["Lines of news, 40% of the messages being repeats of others, in mixed order."],
        data={"messages": len(texts), "distinct": distinct},
    )


def _every(encoder: Encoder, texts: list[str]) -> NDArray[Any]:
    """Without looking for repeats: `embed` is what is left of `encode` then."""
    return np.concatenate([encoder.embed(texts[i : i + _CHUNK]) for i in range(0, len(texts), _CHUNK)])
