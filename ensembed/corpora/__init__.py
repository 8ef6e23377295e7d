r"""Text in: lines, gzip, Parquet, CSV and JSON Lines records, in one file or many, on this machine or behind a URL.

A corpus has a key for its content and knows its repeats. This room may import `support` and `errors`.

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

from ensembed.corpora.corpus import BadBytes, Corpus, ListCorpus, TextCorpus, check_errors
from ensembed.corpora.parted_corpus import ParquetPart, PartedCorpus, TextPart, looks_like_parquet, named_like_parquet
from ensembed.corpora.places import Place, is_url
from ensembed.errors import CorpusError

__all__ = ["PartedCorpus", "as_corpus", "open_corpus"]


def open_corpus(
    source: str | Path, *, errors: BadBytes = "strict", column: str | None = None, name: str | None = None
) -> Corpus:
    """Open the corpus in a file, in the files of a folder, or in those that a pattern such as `news/*.parquet` matches.

    A file is plain or gzipped text with a sentence a line, or Parquet (`pip install 'ensembed[parquet]'`), where blank
    texts and nulls are left out too. Several files are read in the order of their paths, all in the same way; in a
    folder, files whose names begin with a dot or an underscore are skipped. The same sentences have the same key
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
    check_errors(errors)
    if not str(source):
        raise CorpusError("a corpus is a file, a folder, a pattern or a URL, not ''")
    if isinstance(source, str) and is_url(source):
        return _parted(Place.remote(source, name), errors, column)
    path = Path(source)
    is_pattern = not path.exists() and any(c in str(source) for c in "*?[")
    if is_pattern or path.is_dir() or (path.is_file() and _is_parquet(path)):
        return _parted(Place.local(path, name), errors, column)
    if path.exists():
        _check_no_column(column, name or str(source))
    return TextCorpus(path, errors=errors, name=name)


def as_corpus(source: Corpus | Path | Sequence[str]) -> Corpus:
    """Return a corpus from a corpus, a path (`open_corpus`), or a list of sentences."""
    if isinstance(source, Corpus):
        return source
    return open_corpus(source) if isinstance(source, Path) else ListCorpus(source)


def _is_parquet(path: Path) -> bool:
    """Return whether a file is Parquet; False for one that cannot be opened: reading it raises the error."""
    if named_like_parquet(str(path)):
        return True
    try:
        with path.open("rb") as stream:
            return looks_like_parquet(stream)
    except OSError:
        return False


def _parted(place: Place, errors: BadBytes, column: str | None) -> PartedCorpus:
    files = place.files()
    paths = list(files)
    named = [named_like_parquet(path) for path in paths]
    if any(named) and not all(named):
        kinds = [place.name_of(paths[named.index(kind)]) for kind in (True, False)]
        raise CorpusError(
            f"{place} holds Parquet and other files, {kinds[0]} and {kinds[1]} for instance; say which are meant with "
            "a pattern, such as 'news/*.parquet'"
        )
    is_parquet = all(named)
    if not is_parquet and len(paths) == 1:
        with place.open(paths[0]) as stream:
            is_parquet = looks_like_parquet(stream)
    if not is_parquet:
        _check_no_column(column, str(place))
        return PartedCorpus(place, files, [TextPart(place, path, errors) for path in paths])
    # The first file tells the column now, not after hours of work; the other files must have it.
    chosen = ParquetPart(place, paths[0], errors, column).choose()
    return PartedCorpus(place, files, [ParquetPart(place, path, errors, chosen) for path in paths])


def _check_no_column(column: str | None, name: str) -> None:
    if column is not None:
        raise CorpusError(f"{name} is text and has no columns: leave out the column {column!r}")
