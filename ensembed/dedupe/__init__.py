"""Near-duplicates: sentences that say the same, and a threshold for them that needs no labels."""

from __future__ import annotations

from ensembed.dedupe.duplicates import Duplicates, Keep, find_duplicates
from ensembed.dedupe.output import write_groups, write_kept
from ensembed.dedupe.stars import star_groups
from ensembed.dedupe.threshold import FALSE_PAIRS, Threshold, find_threshold

__all__ = [
    "FALSE_PAIRS",
    "Duplicates",
    "Keep",
    "Threshold",
    "find_duplicates",
    "find_threshold",
    "star_groups",
    "write_groups",
    "write_kept",
]
