"""What an ensemble costs on this machine: `ensembed bench`."""

from __future__ import annotations

from ensembed.bench.costs import EnsembleCosts, MemberCosts
from ensembed.bench.measure import measure
from ensembed.bench.texts import default_sentences

__all__ = ["EnsembleCosts", "MemberCosts", "default_sentences", "measure"]
