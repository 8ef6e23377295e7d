"""Reading shards of a corpus in a worker, which gets now this one and now that one."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

from ensembed.corpora.corpus import Corpus


class Reader:
    """The sentences of stretches of rows.

    A stretch behind the last one can be reached by reading on or by beginning anew. What is quicker depends on the
    corpus (gzip has to be unpacked from its beginning, plain text has not), so both are timed.

    Args:
        corpus: the sentences.
        rows: how many there are.
    """

    def __init__(self, corpus: Corpus, rows: int) -> None:
        self._corpus = corpus
        self._rows = rows
        self._sentences: Iterator[str] = iter(())
        self._at = -1
        self._row_seconds = 0.0
        self._anew_seconds = 0.0

    def texts(self, start: int, stop: int) -> list[str]:
        """The sentences of the rows from start up to stop.

        Raises:
            CorpusError: there are not as many any more.
        """
        ahead = start - self._at
        if self._at >= 0 and ahead >= 0 and ahead * self._row_seconds <= self._anew_seconds:
            next(itertools.islice(self._sentences, ahead, ahead), None)  # reads them and drops them
            texts: list[str] = []
        else:
            began = time.perf_counter()
            self._sentences = self._corpus.stretch(start, self._rows)
            texts = list(itertools.islice(self._sentences, 1))
            self._anew_seconds = time.perf_counter() - began
        began = time.perf_counter()
        texts += itertools.islice(self._sentences, stop - start - len(texts))
        self._row_seconds = (time.perf_counter() - began) / (stop - start)
        self._at = stop
        return texts
