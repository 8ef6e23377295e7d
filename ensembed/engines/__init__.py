"""Engines, which run the passes over views: `Local` here, `Ray` on a cluster. May import `methods` and all below it."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ensembed.engines.engine import Engine, Local, Stage
    from ensembed.engines.ray.cluster_resources import Resources
    from ensembed.engines.ray.ray_engine import Ray

__all__ = ["Engine", "Local", "Ray", "Resources", "Stage"]

_MODULES = {"Ray": "ray.ray_engine", "Resources": "ray.cluster_resources"}

# Hidden from type checkers, which would accept any name.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'engine')}"), name)
