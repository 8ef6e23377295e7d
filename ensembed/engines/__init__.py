"""Engines: where encoding and fitting run. `Local` is this process, `Ray` a cluster; importing this imports no ray."""

from ensembed.engines.base import Engine, Stage
from ensembed.engines.local import Local
from ensembed.engines.ray import Ray
from ensembed.engines.resources import Resources

__all__ = ["Engine", "Local", "Ray", "Resources", "Stage"]
