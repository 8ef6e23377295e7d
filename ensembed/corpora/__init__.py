r"""Corpora: reading text from files, folders and URLs, in all formats. This room may import `support` and `errors`.

The formats are lines, gzip, Parquet, CSV and JSON Lines. A corpus has a key for its content and knows its repeats.

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
