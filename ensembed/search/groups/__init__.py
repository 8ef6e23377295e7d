"""Groups of sentences: near-duplicates (sentences that say the same) and clusters (what a corpus is about).

It may import `ensembed.models` and everything below it.
"""

from __future__ import annotations

from ensembed.search.groups.cluster_count import choose_number
from ensembed.search.groups.cluster_words import distinguishing_words
from ensembed.search.groups.clusters import Cluster, Clusters, Method, find_clusters
from ensembed.search.groups.duplicate_output import write_groups, write_kept
from ensembed.search.groups.duplicates import Duplicates, Keep, find_duplicates
from ensembed.search.groups.partition import Partition, density_partition, kmeans_partition
from ensembed.search.groups.stars import star_groups
from ensembed.search.groups.threshold import FALSE_PAIRS, Threshold, find_threshold

__all__ = [
    "FALSE_PAIRS",
    "Cluster",
    "Clusters",
    "Duplicates",
    "Keep",
    "Method",
    "Partition",
    "Threshold",
    "choose_number",
    "density_partition",
    "distinguishing_words",
    "find_clusters",
    "find_duplicates",
    "find_threshold",
    "kmeans_partition",
    "star_groups",
    "write_groups",
    "write_kept",
]
