"""A wide field of encoders to choose constants with: the catalogue's, and many made from them, with their vectors.

An encoder belongs to a family: everything that is made from one encoder. What is chosen with some families is judged on
others (`experiments.field`). The vectors of encoders that run a network are computed once and kept in the cache; those
that are made from vectors (cut, whitened, with noise) are made when they are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensembed.corpora.corpus import TextCorpus
from ensembed.encoders.names_and_consent import open_encoder
from ensembed.encoders.token_ids import first_ids, open_tokenizer
from ensembed.fetch.catalog import entry, require
from ensembed.numerics.row_matrices import unit_rows
from ensembed.reliability.lexical import Lexical
from ensembed.reliability.sufficiency import SoftWhitening
from ensembed.sts.datasets import Dataset, Pairs
from ensembed.sts.find import find_sts
from ensembed.support.atomic_files import new_file
from ensembed.support.machine import cache_dir, data_dirs

Vectors = NDArray[np.float32]

TRAIN, DEV, TEST, NEWS, WIKIPEDIA = "stsb-train", "stsb-dev", "stsb-test", "news", "wikipedia"
PARTS = (TRAIN, DEV, TEST, NEWS, WIKIPEDIA)
"""The texts: sentences to estimate on, sentences to choose on, those that come last, and corpora of other kinds."""
_FILES = {NEWS: "leipzig_eng_news_2016_raw.txt.gz", WIKIPEDIA: "leipzig_eng_wikipedia_2016_raw.txt.gz"}
LINES = 2000
"""Sentences of a corpus that estimates are made on."""
PAIRS = 1000
"""Pairs of STS-B dev that choices are made on."""

WHOLE = ("gte-small", "mpnet", "minilm", "minilm-int8", "use-m3", "paraphrase", "use-lite", "wordllama", "glove")
"""The encoders of the catalogue."""
_POOLED = ("cls", "max")
"""Other poolings of the last layer; the encoder's own is the mean."""
_LAYERS: Mapping[str, tuple[int, ...]] = {"gte-small": (2, 5, 8), "minilm": (1, 3, 4)}
"""Layers whose mean is an encoder, too, by the encoder; layer 0 are the token vectors."""
_BATCH = 64


@dataclass(frozen=True)
class Member:
    """An encoder of the field.

    Attributes:
        name: what it is called in tables.
        family: the encoder of the catalogue that it is made from; `words` for what is made from the words alone.
        kind: how it is made: whole, layers, pooling, cut, noise, whitened, static, words.
    """

    name: str
    family: str
    kind: str


class Field:
    """The field of encoders on one machine, with its vectors.

    Args:
        folder: where vectors are kept.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or cache_dir() / "field"
        self.folder.mkdir(parents=True, exist_ok=True)

    @cached_property
    def datasets(self) -> Mapping[str, Dataset]:
        """A random part of STS-B dev, and STS-B test, by name."""
        [dev] = find_sts(DEV).parts
        rows = np.sort(np.random.default_rng(0).choice(len(dev), min(PAIRS, len(dev)), replace=False))
        first, second = ([texts[row] for row in rows] for texts in (dev.sentences1, dev.sentences2))
        part = Dataset.of(Pairs(DEV, tuple(first), tuple(second), dev.scores[rows]))
        return {DEV: part, TEST: find_sts(TEST)}

    @cached_property
    def texts(self) -> Mapping[str, list[str]]:
        """The distinct sentences of every part."""
        sets = {TRAIN: [find_sts(TRAIN)], DEV: [self.datasets[DEV]], TEST: [self.datasets[TEST]]}
        texts = {part: _distinct(found) for part, found in sets.items()}
        rows = np.sort(np.random.default_rng(0).choice(len(texts[TRAIN]), LINES, replace=False))
        texts[TRAIN] = [texts[TRAIN][row] for row in rows]
        for part, file in _FILES.items():
            paths = [path for folder in data_dirs() if (path := folder / "corpus" / file).is_file()]
            texts[part] = list(dict.fromkeys(islice(TextCorpus(paths[0]), LINES))) if paths else []
        return texts

    @cached_property
    def members(self) -> dict[str, Member]:
        """All encoders, by name."""
        members = [Member(name, name.removesuffix("-int8"), "whole") for name in WHOLE]
        for name, layers in _LAYERS.items():
            members += [Member(f"{name} layer {layer}", name, "layers") for layer in layers]
            members += [Member(f"{name} {pooling}", name, "pooling") for pooling in _POOLED]
            members.append(Member(f"{name} tokens", name, "static"))
        members.append(Member("glove sif", "glove", "pooling"))
        members += [Member(name, "words", "words") for name in _LSA]
        members += [Member(name, made.of, made.kind) for name, made in _MADE.items()]
        return {member.name: member for member in members}

    def vectors(self, name: str, part: str) -> Vectors:
        """Return the vectors [n, d] of a part's sentences, of length one."""
        if name in _MADE:
            made = _MADE[name]
            return made.make(self.vectors(made.of, TRAIN), self.vectors(made.of, part))
        path = self._path(name, part)
        if not path.exists():
            if part != TRAIN:  # the analyses of words differ with the order otherwise
                self.vectors(name, TRAIN)
            self._compute(name, part)
        return np.asarray(np.load(path, allow_pickle=False), np.float32)

    def _path(self, name: str, part: str) -> Path:
        return self.folder / f"{name.replace(' ', '_')}.{part}.npy"

    def _compute(self, name: str, part: str) -> None:
        """Encode the sentences of a part, but for those whose vectors are known from other parts."""
        place: dict[str, tuple[str, int]] = {}
        for other in PARTS:
            if self._path(name, other).exists():
                place |= {sentence: (other, row) for row, sentence in enumerate(self.texts[other])}
        new = [sentence for sentence in self.texts[part] if sentence not in place]
        row_of = {sentence: row for row, sentence in enumerate(new)}
        for made, vectors in self._encoded(name, new):
            known = {other: np.load(self._path(made, other)) for other in PARTS if self._path(made, other).exists()}
            rows = [
                vectors[row_of[text]] if text in row_of else known[place[text][0]][place[text][1]]
                for text in self.texts[part]
            ]
            with new_file(self._path(made, part)) as temporary, temporary.open("wb") as file:
                np.save(file, unit_rows(np.asarray(rows, np.float32)))

    def _encoded(self, name: str, sentences: Sequence[str]) -> Iterator[tuple[str, Any]]:
        family = self.members[name].family
        if family == "words":
            yield from _lsa(tuple(self.texts[TRAIN]), sentences)
        elif family in _LAYERS and name != "minilm-int8":
            yield from layer_vectors(family, sentences)
        else:
            spec = name if name in WHOLE else "glove?pooling=sif&components=0"
            yield name, open_encoder(spec, threads=1).encode(list(sentences))


def layer_vectors(name: str, sentences: Sequence[str]) -> Iterator[tuple[str, Vectors]]:
    """Run an ONNX encoder of the catalogue once; yield its vectors, those of fewer layers and of other poolings."""
    import onnx
    import onnxruntime

    folder = require(name)
    graph = onnx.load(folder / "model.onnx")
    initial = {tensor.name: tensor for tensor in graph.graph.initializer}
    table = onnx.numpy_helper.to_array(next(initial[key] for key in initial if key.endswith("word_embeddings.weight")))
    last = graph.graph.output[0].name
    layers = {layer: f"/encoder/layer.{layer - 1}/output/LayerNorm/Add_1_output_0" for layer in _LAYERS[name]}
    known = {output for node in graph.graph.node for output in node.output}
    for output in layers.values():
        if output not in known:
            raise KeyError(f"{name} has no layer output {output}")
        graph.graph.output.append(onnx.helper.make_tensor_value_info(output, onnx.TensorProto.FLOAT, None))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(graph.SerializeToString(), options, providers=["CPUExecutionProvider"])
    inputs = {node.name for node in session.get_inputs()}
    tokenizer = open_tokenizer(folder / "tokenizer.json", name)
    limit = int(entry(name).settings["max_length"])
    tokenizer.enable_truncation(limit)
    tokens = first_ids(tokenizer, list(sentences), limit)
    order = sorted(range(len(tokens)), key=lambda row: len(tokens[row]))
    results: dict[str, Vectors] = {}
    for start in range(0, len(order), _BATCH):
        rows = order[start : start + _BATCH]
        ids = np.zeros((len(rows), max(len(tokens[row]) for row in rows)), np.int64)
        for i, row in enumerate(rows):
            ids[i, : len(tokens[row])] = tokens[row]
        mask = np.arange(ids.shape[1]) < np.array([len(tokens[row]) for row in rows])[:, None]
        feeds = {"input_ids": ids, "attention_mask": mask.astype(np.int64), "token_type_ids": np.zeros_like(ids)}
        feeds = {key: value for key, value in feeds.items() if key in inputs}
        outputs = dict(zip([last, *layers.values()], session.run([last, *layers.values()], feeds), strict=True))
        made = {name: _mean(outputs[last], mask), f"{name} cls": outputs[last][:, 0]}
        made[f"{name} max"] = np.where(mask[:, :, None], outputs[last], -np.inf).max(axis=1)
        made |= {f"{name} layer {layer}": _mean(outputs[output], mask) for layer, output in layers.items()}
        inner = mask.copy()
        inner[:, 0] = False  # the token that stands before every sentence
        made[f"{name} tokens"] = _mean(table[ids], inner)
        for key, vectors in made.items():
            results.setdefault(key, np.zeros((len(sentences), vectors.shape[1]), np.float32))[rows] = vectors
    yield from results.items()


def _mean(X: NDArray[Any], mask: NDArray[np.bool_]) -> NDArray[Any]:
    return np.asarray((X * mask[:, :, None]).sum(axis=1) / np.maximum(mask.sum(axis=1), 1)[:, None])


_LSA = {"lsa of words": 0, "lsa of letters": 1}


def _lsa(corpus: tuple[str, ...], sentences: Sequence[str]) -> Iterator[tuple[str, NDArray[np.float64]]]:
    """Yield latent semantic analyses of words and of letters, of the corpus and the sentences together."""
    both = _lexical(tuple(dict.fromkeys((*corpus, *sentences))))
    place = {sentence: row for row, sentence in enumerate(dict.fromkeys((*corpus, *sentences)))}
    rows = [place[sentence] for sentence in sentences]
    features = both.features(0)
    for name, half in _LSA.items():
        yield name, np.hsplit(features, 2)[half][rows]


_lexical = lru_cache(maxsize=1)(Lexical)


@dataclass(frozen=True)
class Made:
    """An encoder that is made from the vectors of another.

    Attributes:
        of: the other.
        kind: how it is made.
        make: from the other's vectors of the corpus, and those to change, to the changed ones.
    """

    of: str
    kind: str
    make: Callable[[Vectors, Vectors], Vectors]


def _cut(dims: int) -> Callable[[Vectors, Vectors], Vectors]:
    return lambda _, X: unit_rows(X[:, :dims])


def _noisy(size: float) -> Callable[[Vectors, Vectors], Vectors]:
    """Add normal noise of this length, which depends on the vector: a sentence always gets the same."""

    def make(_: Vectors, X: Vectors) -> Vectors:
        return unit_rows(X + size * unit_rows(_hashed(X)))

    return make


def _random_columns(_: Vectors, X: Vectors) -> Vectors:
    return unit_rows(np.hstack([X, unit_rows(_hashed(X)) * np.float32(0.7)]))


def _hashed(X: Vectors) -> Vectors:
    """Return noise [n, d] that is the same for the same row: a chaotic function of it."""
    W = np.random.default_rng(7).standard_normal(X.shape[::-1][:1] * 2).astype(np.float32)
    return np.asarray(np.sin(300 * (X @ W)), np.float32)


def _whitened(power: float) -> Callable[[Vectors, Vectors], Vectors]:
    def make(corpus: Vectors, X: Vectors) -> Vectors:
        mean = corpus.mean(axis=0, dtype=np.float64)
        values, axes = np.linalg.eigh(np.cov((corpus - mean).T))
        factors = (np.maximum(values, 0) + 1e-3 * values.mean()) ** (-power / 2)
        return unit_rows((((X - mean) @ axes) * factors).astype(np.float32))

    return make


def _softly(corpus: Vectors, X: Vectors) -> Vectors:
    return SoftWhitening.of(corpus.astype(np.float64)).apply(X.astype(np.float64)).astype(np.float32)


_MADE: dict[str, Made] = {
    "minilm cut 64": Made("minilm", "cut", _cut(64)),
    "gte-small cut 96": Made("gte-small", "cut", _cut(96)),
    "wordllama cut 64": Made("wordllama", "cut", _cut(64)),
    "mpnet cut 128": Made("mpnet", "cut", _cut(128)),
    "use-m3 cut 96": Made("use-m3", "cut", _cut(96)),
    "minilm noise": Made("minilm", "noise", _noisy(0.7)),
    "gte-small noise": Made("gte-small", "noise", _noisy(0.4)),
    "mpnet noise": Made("mpnet", "noise", _noisy(1.2)),
    "minilm random columns": Made("minilm", "noise", _random_columns),
    "gte-small whitened": Made("gte-small", "whitened", _whitened(1.0)),
    "minilm whitened": Made("minilm", "whitened", _whitened(1.0)),
    "use-lite whitened": Made("use-lite", "whitened", _whitened(0.5)),
    "glove whitened": Made("glove", "whitened", _whitened(0.5)),
    "wordllama whitened": Made("wordllama", "whitened", _whitened(1.0)),
}


def _distinct(datasets: Sequence[Dataset]) -> list[str]:
    parts = [part for dataset in datasets for part in dataset.parts]
    return list(dict.fromkeys(text for part in parts for text in (*part.sentences1, *part.sentences2)))
