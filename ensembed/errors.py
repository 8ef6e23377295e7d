"""The tree of exceptions that ensembed raises on purpose.

Errors about the input are `ValueError`s too, so that code which does not know ensembed can catch them::

    EnsembedError
    ├── InputError (ValueError)          what you passed in cannot be used
    │   ├── SentenceError                a sentence is not a string, or cannot be written as UTF-8
    │   ├── CorpusError                  a corpus file cannot be read as sentences
    │   │   └── AbsentCorpusError        there is no such file, or no sentence in it
    │   ├── ViewError                    views do not fit together, or hold NaN or Inf
    │   ├── DimensionError               more dimensions are asked for than the data supports
    │   ├── DatasetError                 STS data is damaged, or in an unknown layout
    │   │   └── AbsentDatasetError       nothing of the data set is there
    │   └── UnknownEncoderError          there is no encoder of that name
    ├── EncoderError                     an encoder failed, or returned vectors that cannot be used
    ├── MissingError                     something has to be fetched or installed first
    │   └── PullError                    fetching it failed
    ├── StoreError                       a store of views or vectors cannot be used
    │   ├── StoreBusyError               another process is writing to the same view or store
    │   └── CorruptViewError             files of a view are damaged
    ├── SearchIndexError                 a search index cannot be used
    │   ├── IndexBusyError               another process is writing to it
    │   └── DamagedIndexError            its files are damaged or gone
    ├── ModelError                       a saved model cannot be read or written
    │   └── ConsentError                 a name out of a file would do what needs your consent
    ├── DiskFullError (OSError)          a file cannot be written: the disk is full
    ├── TrainingError                    training failed
    └── EngineError                      a cluster cannot be reached, or its workers died too often
"""

from __future__ import annotations


class EnsembedError(Exception):
    """The base class of every error that ensembed raises on purpose."""


class InputError(EnsembedError, ValueError):
    """What was passed in cannot be used."""


class SentenceError(InputError):
    """A sentence is not a string, or cannot be written as UTF-8."""


class CorpusError(InputError):
    """A corpus file cannot be read as sentences."""


class AbsentCorpusError(CorpusError):
    """There is no such corpus, or no sentence in it."""


class ViewError(InputError):
    """Views do not fit together, or hold NaN or Inf."""


class DimensionError(InputError):
    """More dimensions were asked for than the data supports.

    Attributes:
        supported: how many dimensions it supports; None for other kinds of this error.
    """

    def __init__(self, message: str, supported: int | None = None) -> None:
        super().__init__(message)
        self.supported = supported


class DatasetError(InputError):
    """An STS file or folder is damaged, or not in a known layout."""


class AbsentDatasetError(DatasetError):
    """Nothing of the data set is in this folder; another folder may have it."""


class UnknownEncoderError(InputError):
    """There is no encoder of that name."""


class EncoderError(EnsembedError):
    """An encoder failed, or returned vectors that cannot be used."""


class MissingError(EnsembedError):
    """Something has to be fetched or installed first."""


class PullError(MissingError):
    """Fetching an encoder's files failed."""


class StoreError(EnsembedError):
    """A store, of views or of vectors, cannot be used."""


class StoreBusyError(StoreError):
    """Another process is writing to the same view or store."""


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


EFFECTS = ("code", "network", "files")
"""What needs consent: running code, talking to a network, reading what is no plain file or folder."""


class ConsentError(ModelError):
    """A name out of a file would do what needs the caller's consent."""

    @classmethod
    def of(cls, subject: str, effects: dict[str, str]) -> ConsentError:
        """Return the error on some of `EFFECTS` of a subject, each with what it would do."""
        names = ",".join(effects)
        way_out = f'To allow that, pass --trust {names} (trust="{names}"), or --trust (trust=True) to allow everything'
        return cls(f"{subject} {' and '.join(effects.values())}. {way_out}")


class DiskFullError(EnsembedError, OSError):
    """A file cannot be written, because the disk or the user's quota on it is full; the message names the file.

    It is an OSError, too, so that what handles errors of the disk handles it, and usually adds what was being written.
    """


class TrainingError(EnsembedError):
    """Training failed."""


class EngineError(EnsembedError):
    """A cluster cannot be reached, or its workers died too often."""
