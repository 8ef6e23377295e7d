"""Clusters: what a corpus is about, with sentences and words that say so."""

from __future__ import annotations

from ensembed.cluster.clusters import Cluster, Clusters, Method, find_clusters
from ensembed.cluster.number import choose_number
from ensembed.cluster.partition import Partition, density_partition, kmeans_partition
from ensembed.cluster.words import distinguishing_words

__all__ = [
    "Cluster",
    "Clusters",
    "Method",
    "Partition",
    "choose_number",
    "density_partition",
    "distinguishing_words",
    "find_clusters",
    "kmeans_partition",
]
