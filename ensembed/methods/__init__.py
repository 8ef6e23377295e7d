"""The methods: how views are combined into one meta-embedding."""

from ensembed.methods.average import Average
from ensembed.methods.base import Method
from ensembed.methods.concat import Concat
from ensembed.methods.gcca import GCCA
from ensembed.methods.linear import LinearMeta
from ensembed.methods.svd import SVD
from ensembed.methods.up_projection import UpProjection

METHODS: dict[str, type[Method]] = {cls.name: cls for cls in (Concat, Average, SVD, GCCA, UpProjection)}
"""Every method by its short name."""

__all__ = ["GCCA", "METHODS", "SVD", "Average", "Concat", "LinearMeta", "Method", "UpProjection"]
