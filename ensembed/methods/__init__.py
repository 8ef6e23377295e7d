"""The methods: how views are combined into one meta-embedding. May import `reliability`, `views` and all below them."""

from __future__ import annotations

from ensembed.methods.auto import Auto
from ensembed.methods.autoencoder import Autoencoder
from ensembed.methods.average import Average
from ensembed.methods.concat import Concat
from ensembed.methods.gcca import GCCA
from ensembed.methods.meta import Meta
from ensembed.methods.method import Method
from ensembed.methods.registry import METHODS, all_methods, make_method
from ensembed.methods.svd import SVD
from ensembed.methods.up_projection import UpProjection

__all__ = [
    "GCCA",
    "METHODS",
    "SVD",
    "Auto",
    "Autoencoder",
    "Average",
    "Concat",
    "Meta",
    "Method",
    "UpProjection",
    "all_methods",
    "make_method",
]
