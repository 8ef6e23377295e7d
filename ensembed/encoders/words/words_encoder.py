"""Word vectors pooled to sentence vectors: the plain mean, SIF or uSIF."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ensembed.corpora import as_corpus
from ensembed.corpora.corpus import Corpus
from ensembed.encoders.base import Encoder, EncoderSpec, FloatArray
from ensembed.encoders.model_files import remembered
from ensembed.encoders.names_and_consent import Request, flag, one_of, place_effects, user_path
from ensembed.encoders.words.word_pooling import KINDS, SOURCES, Frequencies, Kind, Pooling, fit_pooling
from ensembed.encoders.words.word_vector_files import FORMATS
from ensembed.encoders.words.word_vectors import TOKENS_VERSION, open_word_vectors
from ensembed.errors import InputError
from ensembed.support.progress import Progress, silent

OPENS = "file of word vectors: GloVe, word2vec, fastText, wink"
effects = partial(place_effects, options=("corpus",))


class WordsEncoder(Encoder):
    r"""A sentence is the pooled vectors of its words; unknown words are left out, and no known word gives zeros.

    The first opening converts the file. The common components of sif and usif are fitted on a corpus and cached.

    Args:
        path: a file of word vectors, see `word_vector_files`.
        pooling: `mean`, `sif`, `usif`, or a `Pooling` with other settings than the kind's own.
        corpus: for sif and usif: sentences like those that will be encoded; a list, a text file's path, or a Corpus.
        format: the format of the file; None recognises it.
        name: how to call the encoder.
        revision: pins the file's content; None hashes it.
        progress: takes reports of the conversion and of the passes over the corpus.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder) / "vectors.txt"
        ...     _ = path.write_text("dogs 1 0\nbark 0 1\nloudly 0 3\n")
        ...     WordsEncoder(path).encode(["Dogs bark!"]).tolist()
        [[0.5, 0.5]]
    """

    def __init__(
        self,
        path: Path | str,
        *,
        pooling: Kind | Pooling = "mean",
        corpus: Corpus | Path | Sequence[str] | None = None,
        format: str | None = None,  # noqa: A002 - what the option is called
        name: str | None = None,
        revision: str | None = None,
        progress: Progress = silent,
    ) -> None:
        name = name or f"words:{path}"
        pooling = pooling if isinstance(pooling, Pooling) else Pooling(pooling)
        if corpus is not None and not pooling.uses_corpus:
            raise InputError(f"encoder {name!r} has no use for a corpus: leave it out, or choose pooling=sif or usif")
        if corpus is None and pooling.frequencies == "corpus":
            raise InputError(f"encoder {name!r} counts words on a corpus: add corpus=FILE, or frequencies=wordfreq")
        if corpus is None and pooling.needs_corpus:
            raise InputError(
                f"encoder {name!r}: pooling={pooling.kind} removes what the sentences of a corpus have in common: "
                "add corpus=FILE, a text like yours, or components=0 to leave it in"
            )
        # What can be missing comes first: the conversion of the vectors may take minutes.
        wordfreq = pooling.kind != "mean" and pooling.frequencies != "corpus"
        frequencies = Frequencies.of_wordfreq(pooling.lang or "en") if wordfreq else None
        sentences = None if corpus is None else as_corpus(corpus)
        vectors = open_word_vectors(Path(path), format=format, revision=revision, progress=progress)
        if pooling.removed > vectors.dim:
            raise InputError(f"encoder {name!r} has {vectors.dim} dimensions: components cannot be {pooling.removed}")
        key = ""
        if sentences is not None:
            # A file's is remembered, as it takes a pass over the file; the times of a folder do not tell of its files.
            file = corpus if isinstance(corpus, Path) and corpus.is_file() else None
            key = remembered(file, "corpus", lambda: sentences.key) if file else sentences.key
        self._bags, self._components, facts = fit_pooling(vectors, pooling, frequencies, sentences, key, progress)
        extra = tuple(sorted({"format": vectors.format, "tokens": TOKENS_VERSION, **facts}.items()))
        self._spec = EncoderSpec(name, "words", vectors.dim, vectors.revision, pooling=pooling.kind, extra=extra)

    def embed(self, sentences: list[str]) -> FloatArray:
        """Return the pooled vectors, less the common components."""
        means = self._bags.means(sentences)
        return (self._components.removed_from(means) if self._components else means).astype(np.float32)


def open_words(request: Request) -> WordsEncoder:
    """Open `words:FILE`, or a short name of the catalogue."""
    types: dict[str, Any] = {"pooling": one_of(*KINDS), "corpus": user_path, "components": int, "a": float}
    types |= {"length": float, "frequencies": one_of(*SOURCES), "lang": str, "rescale": flag}
    options = request.options(**types, format=one_of(*FORMATS))
    facts: dict[str, Any] = {key: options.pop(key, None) for key in ("corpus", "format")}
    facts |= {"name": request.name, "revision": request.revision, "progress": request.progress}
    path = request.path / next(iter(request.entry.files)) if request.entry else request.path
    return WordsEncoder(path, pooling=Pooling(options.pop("pooling", "mean"), **options), **facts)
