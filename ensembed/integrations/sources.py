"""The former place of `Source`: topic models that version 0.1 pickled name it by this path."""

from ensembed.integrations.model_source import Source

__all__ = ["Source"]
