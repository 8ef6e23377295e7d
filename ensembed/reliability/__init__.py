"""Estimates of encoders' reliability and likeness, without labels. May import `encoders` and all below it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ensembed.reliability.trust_estimate import Reliability, reliability

__all__ = ["Reliability", "reliability"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a class or a function
    """Import the estimate when it is asked for: other modules of this room are needed by every model, and are light."""
    if name in __all__:
        from ensembed.reliability import trust_estimate

        return getattr(trust_estimate, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
