"""A corpus that lies in one file or several, of any kind, in any file system."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ensembed.corpora.corpus import MARK_ROWS, START, WAY_OUT, BadBytes, Corpus, Lines, Mark, not_blank
from ensembed.corpora.places import Place, State
from ensembed.errors import CorpusError

Reading = tuple[Iterator[str], Callable[[], int]]
"""Sentences, and what tells the place of the next one; it is not asked after the end."""


class Part(ABC):
    """One file of a corpus."""

    @abstractmethod
    def read(self, place: int = 0) -> Reading:
        """The sentences from a place on that an earlier reading told of."""


@dataclass(frozen=True)
class TextPart(Part):
    """A file of text, plain or gzipped; a place is a byte of the text."""

    where: Place
    path: str
    errors: BadBytes

    def read(self, place: int = 0) -> Reading:
        """The sentences from that byte on."""
        name = self.where.name_of(self.path)
        lines = Lines(lambda: self.where.open(self.path), name, self.errors, way_out=WAY_OUT, place=place)
        return not_blank(lines), lines.tell


class PartedCorpus(Corpus):
    """The sentences of several files, one file after the other, as if they were one.

    Args:
        place: where the files are.
        files: their paths, with the states they are in.
        parts: what reads them.
    """

    def __init__(self, place: Place, files: Mapping[str, State], parts: Sequence[Part]) -> None:
        self._place = place
        self._files = dict(files)
        self._parts = tuple(parts)
        self._looks: dict[str, State | None] = {}

    def __iter__(self) -> Iterator[str]:
        return self.read_from()[0]

    def read_from(self, mark: Mark = START) -> tuple[Iterator[str], Callable[[], Mark] | None]:
        """The sentences from a place in a part on."""
        first, place = mark
        number = first
        tell: Callable[[], int] = lambda: place  # noqa: E731 - `sentences` puts another in its place

        def sentences() -> Iterator[str]:
            nonlocal number, tell
            for number in range(first, len(self._parts)):
                texts, tell = self._parts[number].read(place if number == first else 0)
                yield from texts

        return sentences(), lambda: (number, tell())

    def check_unchanged(self) -> None:
        """Raise a CorpusError if a file was changed or removed; one that was added since is not read."""
        now = self._place.files()
        for path, state in self._files.items():
            if path not in now:
                raise CorpusError(f"{self._place.name_of(path)} is no longer there; run again")
            if now[path] != state:
                raise CorpusError(f"{self._place.name_of(path)} changed while it was being read; run again")

    def check_rows(self, start: int, stop: int, /) -> None:
        """The same for the files of these rows alone; where one of them looks changed, all are listed to make sure."""
        looks = {path: self._look(path) for path in self._paths(start, stop)}
        if not all(self._is_known(path, look) for path, look in looks.items()):
            self.check_unchanged()
            self._looks |= looks  # they were taken before: of files that were unchanged later

    def _paths(self, start: int, stop: int) -> list[str]:
        """The files that hold these rows, and perhaps some of their neighbours: marks do not say it to the row."""
        paths, brief = list(self._files), self._known()
        if brief is None:
            return paths
        after = -(-stop // MARK_ROWS)
        last = brief.marks[after, 0] if after < len(brief.marks) else len(paths)
        return paths[brief.marks[start // MARK_ROWS, 0] : last + 1]

    def _look(self, path: str) -> State | None:
        try:
            return self._place.state(path)
        except CorpusError:
            return None

    def _is_known(self, path: str, look: State | None) -> bool:
        # File systems that write a time in one way in a listing, and in another where they are asked for one file, are
        # listed once.
        return look is not None and (set(self._files[path]) <= set(look) or look == self._looks.get(path))

    def __str__(self) -> str:
        return str(self._place)
