"""Which encoders to trust, without labels."""

from __future__ import annotations

from ensembed.reliability.estimate import Reliability, reliability

__all__ = ["Reliability", "reliability"]
