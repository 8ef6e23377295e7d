"""Which encoders to trust, without labels."""

from __future__ import annotations

from ensembed.reliability.estimate import reliability
from ensembed.reliability.result import Reliability

__all__ = ["Reliability", "reliability"]
