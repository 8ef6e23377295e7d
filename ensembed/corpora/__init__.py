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

from ensembed.corpora.parted_corpus import PartedCorpus, as_corpus, open_corpus

__all__ = ["PartedCorpus", "as_corpus", "open_corpus"]
