"""Groups of sentences: near-duplicates (sentences that say the same) and clusters (what a corpus is about)."""

from __future__ import annotations

from ensembed.search.groups.cluster_page import cluster_page
from ensembed.search.groups.clusters import (
    Cluster,
    Clusters,
    Method,
    Partition,
    choose_number,
    density_partition,
    distinguishing_words,
    find_clusters,
    kmeans_partition,
)
from ensembed.search.groups.duplicates import (
    FALSE_PAIRS,
    Duplicates,
    Keep,
    Threshold,
    find_duplicates,
    find_threshold,
    near_identical_cosine,
    star_groups,
    write_groups,
    write_kept,
)

__all__ = ["FALSE_PAIRS", "Cluster", "Clusters", "Duplicates", "Keep", "Method", "Partition", "Threshold"]
__all__ += ["choose_number", "cluster_page", "density_partition", "distinguishing_words", "find_clusters"]
__all__ += ["find_duplicates", "find_threshold", "kmeans_partition", "near_identical_cosine", "star_groups"]
__all__ += ["write_groups", "write_kept"]
