"""How often each pair of sentences is drawn in each resample: the Poisson bootstrap, without any state.

The data sets share pairs (the STS Benchmark is drawn from the others), so a pair has to be drawn as often in one as in
all. Its counts therefore depend on the seed, its two sentences and the number of the resample alone: they are a hash
of these, and nobody has to hand them on. Counts are Poisson(1), independent of each other, instead of summing up to
the number of pairs (Hanley and MacGibbon 2006, "Creating non-parametric bootstrap samples using Poisson frequencies").
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from ensembed.sts.datasets import Pairs

# P(count <= k), up to where nothing is left of 1 in float64.
_POISSON = np.cumsum([math.exp(-1) / math.factorial(k) for k in range(18)])
# Of SplitMix64 (Steele, Lea and Flood 2014).
_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX = ((30, np.uint64(0xBF58476D1CE4E5B9)), (27, np.uint64(0x94D049BB133111EB)))
# A further attempt begins so far along a pair's stream; no run has so many resamples.
_ATTEMPT = 1 << 32


def pair_keys(parts: Iterable[Pairs], seed: int) -> NDArray[np.uint64]:
    """A number for each pair [n], the same wherever its two sentences stand together, in either order.

    >>> there, back = Pairs("one", ("a", "b"), ("b", "c"), [1, 2]), Pairs("two", ("b",), ("a",), [5])
    >>> pair_keys([there], seed=0)[:1] == pair_keys([back], seed=0)
    array([ True])
    """
    keys = [_key(seed, *sorted(pair)) for part in parts for pair in zip(part.sentences1, part.sentences2, strict=True)]
    return np.array(keys, np.uint64)


def counts(keys: NDArray[np.uint64], resamples: Sequence[int] | NDArray[np.int64], attempt: int) -> NDArray[np.float64]:
    """How often each pair is drawn in these resamples [resamples, n]; another attempt draws anew."""
    steps = np.asarray(resamples, np.uint64) + np.uint64(attempt * _ATTEMPT)
    uniforms = (stream(keys, steps) >> np.uint64(11)) * 2.0**-53
    drawn: NDArray[np.float64] = np.searchsorted(_POISSON, uniforms, side="right").astype(np.float64)
    return drawn


def stream(keys: NDArray[np.uint64], steps: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The numbers at these steps, from 0, of SplitMix64 begun at each key [steps, keys].

    >>> stream(np.array([1234567], np.uint64), np.arange(2, dtype=np.uint64)).ravel().tolist()
    [6457827717110365317, 3203168211198807973]
    """
    state = keys + ((steps + np.uint64(1)) * _GAMMA)[:, None]  # modulo 2**64, as all of it
    for shift, factor in _MIX:
        state = (state ^ (state >> np.uint64(shift))) * factor
    mixed: NDArray[np.uint64] = state ^ (state >> np.uint64(31))
    return mixed


def _key(seed: int, *sentences: str) -> int:
    # surrogatepass: any text that could be read has a key.
    texts = [sentence.encode("utf-8", "surrogatepass") for sentence in sentences]
    facts = b"".join(len(text).to_bytes(8, "big") + text for text in (str(seed).encode(), *texts))
    return int.from_bytes(hashlib.blake2b(facts, digest_size=8).digest(), "big")
