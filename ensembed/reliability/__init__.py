"""Estimates of encoders' reliability and likeness, without labels. May import `views` and all below it."""

from __future__ import annotations

from ensembed.reliability.estimate import Reliability, reliability

__all__ = ["Reliability", "reliability"]
