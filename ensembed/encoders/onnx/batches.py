"""Which sentences run together through a transformer."""

from __future__ import annotations

from collections.abc import Sequence

# Tokens per run, padding included. MiniLM on one core, by CPU time: 286 to 292 sentences a second at 96 to 512 tokens,
# which is one and the same within the noise, 262 at 1,024 and 180 at 4,096.
_MOST = 384
_LEAST = 96

# Runs for each thread, so that all of them end at about the same time.
_TURNS = 4


def batches(lengths: Sequence[int], *, size: int, threads: int, fixed: int | None, mixed: bool) -> list[list[int]]:
    """Row numbers in batches of like length, the longest first; sentences without a token are in none.

    The longest batches come first, since a long one that begins last would keep the other threads waiting.

    Args:
        lengths: tokens of each sentence.
        size: sentences in a batch at the most.
        threads: how many batches run at a time.
        fixed: what every sentence is padded to; None for the longest of its batch.
        mixed: whether sentences of different lengths may be in one batch.
    """
    # Each sentence counts as what it is padded to.
    padded = [0 if not length else fixed or length for length in lengths]
    budget = min(_MOST, max(_LEAST, -(-sum(padded) // (threads * _TURNS))))
    result: list[list[int]] = []
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        if not lengths[row]:
            break
        batch = result[-1] if result else []
        fits = 0 < len(batch) < size and (len(batch) + 1) * padded[batch[0]] <= budget
        if fits and (mixed or lengths[row] == lengths[batch[0]]):
            batch.append(row)
        else:
            result.append([row])
    return result
