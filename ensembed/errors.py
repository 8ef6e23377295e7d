"""Everything ensembed raises on purpose.

What blames the input is a `ValueError` too, so that code which knows nothing of ensembed can catch it::

    EnsembedError
    ├── InputError (ValueError)          what you passed in cannot be used
    │   ├── SentenceError                a sentence is not a usable string
    │   ├── CorpusError                  a corpus file cannot be read as sentences
    │   ├── ViewError                    views do not fit together, or hold NaN or Inf
    │   ├── DimensionError               more dimensions asked for than the data supports
    │   ├── DatasetError                 an STS file or folder is not in a layout we know, or damaged
    │   │   └── AbsentDatasetError       ...or there is nothing of the data set at all
    │   └── UnknownEncoderError          no encoder of that name
    ├── EncoderError                     an encoder failed or returned something unusable
    ├── MissingError                     something has to be fetched or installed first
    │   └── PullError                    ...and fetching it failed
    ├── StoreError                       the view store cannot be used
    │   ├── StoreBusyError               another process is writing the same view
    │   └── CorruptViewError             files of a view are damaged
    ├── SearchIndexError                 a search index cannot be used
    │   ├── IndexBusyError               another process is writing to it
    │   └── DamagedIndexError            files of it are damaged or gone
    ├── ModelError                       a saved model cannot be read or written
    ├── TrainingError                    training went wrong
    └── EngineError                      a cluster cannot be reached, or lost its workers too often
"""

from __future__ import annotations


class EnsembedError(Exception):
    """The root of every error ensembed raises on purpose."""


class InputError(EnsembedError, ValueError):
    """What was passed in cannot be used."""


class SentenceError(InputError):
    """A sentence is not a usable string."""


class CorpusError(InputError):
    """A corpus file cannot be read as sentences."""


class ViewError(InputError):
    """Views do not fit together, or hold NaN or Inf."""


class DimensionError(InputError):
    """More dimensions were asked for than the data supports.

    Attributes:
        supported: how many it does; None where the error is of another kind.
    """

    def __init__(self, message: str, supported: int | None = None) -> None:
        super().__init__(message)
        self.supported = supported


class DatasetError(InputError):
    """An STS file or folder is not in a layout we know, or damaged."""


class AbsentDatasetError(DatasetError):
    """There is nothing of the data set where it was looked for: another place may have it whole."""


class UnknownEncoderError(InputError):
    """There is no encoder of that name."""


class EncoderError(EnsembedError):
    """An encoder failed or returned something unusable."""


class MissingError(EnsembedError):
    """Something has to be fetched or installed first."""


class PullError(MissingError):
    """Fetching an encoder's files failed."""


class StoreError(EnsembedError):
    """A store, of views or of vectors, cannot be used."""


class StoreBusyError(StoreError):
    """Another process is writing the same view or store."""


class CorruptViewError(StoreError):
    """Files of a view are damaged."""


class SearchIndexError(EnsembedError):
    """A search index cannot be used."""


class IndexBusyError(SearchIndexError):
    """Another process is writing to the search index."""


class DamagedIndexError(SearchIndexError):
    """Files of a search index are damaged or gone."""


class ModelError(EnsembedError):
    """A saved model cannot be read or written."""


class TrainingError(EnsembedError):
    """Training went wrong."""


class EngineError(EnsembedError):
    """A cluster cannot be reached, or lost its workers too often."""
