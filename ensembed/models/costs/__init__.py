"""What an ensemble costs on this machine: `ensembed bench`."""

from __future__ import annotations

from ensembed.models.costs.costs import EnsembleCosts, MemberCosts
from ensembed.models.costs.measure import measure
from ensembed.models.costs.texts import default_sentences

__all__ = ["EnsembleCosts", "MemberCosts", "default_sentences", "measure"]
