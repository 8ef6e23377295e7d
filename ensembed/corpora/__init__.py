r"""Corpora from wherever they are: text, gzip or Parquet, in one file or in many, on this machine or behind a URL.

Example:
    >>> import tempfile
    >>> from pathlib import Path
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "part-0.txt").write_text("one sentence\n")
    >>> _ = (folder / "part-1.txt").write_text("another\n")
    >>> list(open_corpus(folder))
    ['one sentence', 'another']
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from ensembed.corpora.corpus import BadBytes, Corpus, ListCorpus, TextCorpus
from ensembed.corpora.parquet_corpus import ParquetPart, looks_like_parquet, named_like_parquet
from ensembed.corpora.parted_corpus import Part, PartedCorpus, TextPart
from ensembed.corpora.places import Place
from ensembed.corpora.urls import is_url
from ensembed.errors import CorpusError, InputError

__all__ = ["PartedCorpus", "as_corpus", "open_corpus"]

_GLOB = frozenset("*?[")


def open_corpus(
    source: str | Path, *, errors: BadBytes = "strict", column: str | None = None, name: str | None = None
) -> Corpus:
    """The corpus in a file, in the files of a folder, or in those that a pattern such as `news/*.parquet` stands for.

    A file is plain or gzipped text with a sentence a line, or Parquet (`pip install 'ensembed[parquet]'`), where blank
    texts and nulls are left out too. Several files are read in the order of their paths, all in the same way; in a
    folder those whose names begin with a dot or an underscore are passed over. The same sentences have the same key
    wherever they are read from.

    Args:
        source: a path, or a URL of any protocol that fsspec knows, such as s3://bucket/news/*.parquet. What such a file
            system needs to know, keys for instance, it takes from its own settings or from those of fsspec.
        errors: what to do with bytes that are not UTF-8: "strict" refuses them, "replace" puts U+FFFD.
        column: the column of a Parquet file that holds the sentences; by default the only one of strings.
        name: what errors call it; by default the source, without what may be a secret.

    Raises:
        CorpusError: there is nothing there, or it is no corpus.
        MissingError: a package is missing: pyarrow, or the one for the protocol.
    """
    if errors not in get_args(BadBytes):
        raise InputError(f"errors is 'strict' or 'replace', not {errors!r}")
    if not str(source):
        raise CorpusError("a corpus is a file, a folder, a pattern or a URL, not ''")
    local = isinstance(source, Path) or not is_url(source)
    if local and not Path(source).is_dir():
        path = Path(source)
        if not path.exists() and not _GLOB & set(str(source)):
            return TextCorpus(path, errors=errors, name=name)  # which says what is wrong with it
        if path.exists() and not (path.is_file() and _is_parquet(path)):
            _check_no_column(column, name or str(source))
            return TextCorpus(path, errors=errors, name=name)
    place = Place.local(Path(source), name) if local else Place.remote(str(source), name)
    files = place.files()
    parts = _parts(place, list(files), errors, column)
    return PartedCorpus(place, files, parts)


def as_corpus(source: Corpus | Path | Sequence[str]) -> Corpus:
    """A corpus from a corpus, the path of a file, a folder or a pattern (`open_corpus`), or a list of sentences."""
    if isinstance(source, Corpus):
        return source
    if isinstance(source, Path):
        return open_corpus(source)
    return ListCorpus(source)


def _is_parquet(path: Path) -> bool:
    """Whether a file is Parquet; one that cannot be opened is left to the error of whoever reads it."""
    if named_like_parquet(str(path)):
        return True
    try:
        with path.open("rb") as stream:
            return looks_like_parquet(stream)
    except OSError:
        return False


def _parts(place: Place, paths: Sequence[str], errors: BadBytes, column: str | None) -> list[Part]:
    named = [named_like_parquet(path) for path in paths]
    if any(named) and not all(named):
        kinds = [place.name_of(paths[named.index(kind)]) for kind in (True, False)]
        raise CorpusError(
            f"{place} holds Parquet and other files, {kinds[0]} and {kinds[1]} for instance; say which are meant with "
            "a pattern, such as 'news/*.parquet'"
        )
    if not all(named):
        alone = len(paths) == 1
        if alone:
            with place.open(paths[0]) as stream:
                named = [looks_like_parquet(stream)]
        if not all(named):
            _check_no_column(column, str(place))
            return [TextPart(place, path, errors) for path in paths]
    first = ParquetPart(place, paths[0], errors, column)
    chosen = first.choose()  # now, not after the work; the other parts have to have it
    return [ParquetPart(place, path, errors, chosen) for path in paths]


def _check_no_column(column: str | None, name: str) -> None:
    if column is not None:
        raise CorpusError(f"{name} is text and has no columns: leave out the column {column!r}")
