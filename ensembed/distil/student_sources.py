"""What students are made of: a tokenizer, where the weights start, and what suits the training of that kind."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ensembed.distil.bert_files import Bert, read_bert, read_bert_graph
from ensembed.distil.static_start import TokenRows, starting_table, static_table, token_features
from ensembed.distil.student_card import licence_of, shown_name
from ensembed.encoders import open_encoder
from ensembed.encoders.base import Encoder, naming_failures
from ensembed.encoders.model2vec_encoder import unknown_token
from ensembed.encoders.model_files import read_object
from ensembed.encoders.names_and_consent import at_least, parse_name
from ensembed.encoders.static_encoder import StaticEncoder
from ensembed.encoders.token_ids import all_ids, first_ids, open_tokenizer, read_tokenizer
from ensembed.errors import EncoderError, InputError
from ensembed.models.ensemble import MetaEncoder
from ensembed.support.checks import check_whole
from ensembed.support.progress import Progress
from ensembed.views import ViewStore

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from ensembed.distil.distillation import Plan

StudentStart: TypeAlias = Mapping[str, NDArray[Any]]
"""The first weights of a student, by name."""

NOTHING = ("none",)
"""The start of a static student that begins with random vectors."""
_USUAL_DIM = 384
_USUAL_LENGTH = 128
_HEADS = (12, 16, 8, 6, 4, 2, 1, 24, 32, 3)  # the most frequent first


@dataclass(frozen=True)
class Usual:
    """The training that suits a kind of student; chosen on STS-B dev (results/distil.md)."""

    epochs: int
    batch_size: int
    learning_rate: float
    whiten: float
    near: float


class StudentSource(ABC):
    """A kind of student before it is trained.

    Attributes:
        kind: its name in a job.
        usual: the training that suits it.
        tokenizer: the content of its `tokenizer.json`.
        vocabulary: the number of tokens.
        max_length: the most tokens of a sentence that are looked at.
        facts: what the network has to know of it, in plain JSON.
        ingredients: names and licences of what it starts from.
    """

    kind: ClassVar[str]
    usual: ClassVar[Usual]
    tokenizer: bytes
    vocabulary: int
    max_length: int
    facts: Mapping[str, Any]
    ingredients: Sequence[Mapping[str, str]]

    @abstractmethod
    def dim(self, wanted: int | None, teacher: int) -> int:
        """Return the student's dimensions, for a teacher of so many."""

    @abstractmethod
    def token_ids(self, sentences: list[str]) -> list[list[int]]:
        """Return the tokens of sentences that the student looks at."""

    @abstractmethod
    def start(
        self, folder: Path, held: NDArray[np.int64], seed: int, store: ViewStore, progress: Progress
    ) -> StudentStart:
        """Return the first weights; the folder has the job's tokens and targets, whose rows `held` are held out."""

    @property
    @abstractmethod
    def key(self) -> str:
        """A hash of what it starts from."""


def open_student(
    plan: Plan, teacher: Encoder | Path, *, threads: int | None = None, progress: Progress
) -> StudentSource:
    """Open what a plan asks for."""
    if threads is not None:
        check_whole("threads", threads, 1)
    if plan.student == "static":
        return StaticSource(plan, teacher, threads=threads, progress=progress)
    for name in ("start", "tokenizer"):
        if getattr(plan, name) is not None:
            raise InputError(f"{name} is for static students; {plan.student!r} starts from its own weights")
    if plan.precision != "float32":
        raise InputError(f"precision={plan.precision!r} is for static students; {plan.student!r} is stored in float32")
    return BertSource(plan, threads=threads, progress=progress)


class StaticSource(StudentSource):
    """A table of token vectors that start from encoders' vectors of each token's text, or at random."""

    kind = "static"
    usual = Usual(epochs=6, batch_size=1024, learning_rate=2e-3, whiten=0.5, near=0.3)

    def __init__(self, plan: Plan, teacher: Encoder | Path, *, threads: int | None, progress: Progress) -> None:
        if plan.start is None:
            self._encoders = _members(teacher)
        elif plan.start == NOTHING:
            self._encoders = []
        else:
            self._encoders = [open_encoder(name, threads=threads, progress=progress) for name in plan.start]
        if plan.tokenizer is not None:
            self._tokenizer = open_tokenizer(plan.tokenizer, "static")
        else:
            known = (_tokenizer_of(encoder) for encoder in (*self._encoders, *_members(teacher)))
            chosen = next((tokenizer for tokenizer in known if tokenizer is not None), None)
            if chosen is None:
                raise InputError(
                    "a static student needs a tokenizer, and neither start nor teacher has one in the format of the "
                    "tokenizers library: name a file, tokenizer='tokenizer.json' (--tokenizer tokenizer.json)"
                )
            self._tokenizer = chosen
        self.tokenizer = self._tokenizer.to_str().encode()
        self.vocabulary = max(self._tokenizer.get_vocab().values(), default=-1) + 1
        self.max_length = plan.max_length or _USUAL_LENGTH
        self._unknown = unknown_token(self._tokenizer)
        self.facts = {}
        self.ingredients = [
            {"name": shown_name(encoder.spec.name), "licence": licence_of(encoder.spec.name)}
            for encoder in self._encoders
        ]

    def dim(self, wanted: int | None, teacher: int) -> int:
        """Return the wanted dimensions, or 384; at most those of the teacher."""
        return min(_USUAL_DIM, teacher) if wanted is None else wanted

    def token_ids(self, sentences: list[str]) -> list[list[int]]:
        """Return the known tokens, without special ones."""
        cut = [sentence[: 64 * self.max_length] for sentence in sentences]
        with naming_failures("static"):
            return [
                [i for i in ids[: self.max_length] if i != self._unknown]
                for ids in all_ids(self._tokenizer, cut, special=False)
            ]

    def start(
        self, folder: Path, held: NDArray[np.int64], seed: int, store: ViewStore, progress: Progress
    ) -> StudentStart:
        """Return the table."""
        rows = TokenRows.in_folder(folder, self.vocabulary, held)
        parts = [self._features(encoder, store, progress) for encoder in self._encoders]
        features = np.concatenate(parts, axis=1) if parts else None
        return {"vectors": starting_table(features, rows, seed)}

    def _features(self, encoder: Encoder, store: ViewStore, progress: Progress) -> NDArray[np.float32]:
        """Return an encoder's vectors of the tokens [V, d]: a static model's own, if they have the same tokenizer."""
        if isinstance(encoder, StaticEncoder):
            own = _tokenizer_of(encoder)
            if own is not None and own.get_vocab() == self._tokenizer.get_vocab():
                return static_table(encoder, self.vocabulary)
        return token_features(self._tokenizer, encoder, store, progress)

    @cached_property
    def key(self) -> str:
        """A hash of tokenizer and encoders."""
        facts = [encoder.spec.key for encoder in self._encoders]
        return hashlib.sha256(self.tokenizer + json.dumps(facts).encode()).hexdigest()


class BertSource(StudentSource):
    """A BERT on the disk, all or some of its layers."""

    kind = "bert"
    usual = Usual(epochs=3, batch_size=64, learning_rate=2e-4, whiten=0.0, near=0.0)

    def __init__(self, plan: Plan, *, threads: int | None, progress: Progress) -> None:
        bert = open_bert(plan.student, threads=threads, progress=progress)
        limit = plan.max_length or min(_USUAL_LENGTH, bert.max_length)
        if limit > bert.max_length:
            raise InputError(
                f"the student {plan.student!r} takes {bert.max_length} tokens: max_length={limit} is too many"
            )
        self._bert, self._name, self._trained_on = bert, plan.student, limit
        self.max_length = plan.max_length or bert.max_length  # of the saved student
        self.tokenizer, self.vocabulary = bert.tokenizer, int(bert.config["vocab_size"])
        self._tokenizer = read_tokenizer(bert.tokenizer, f"the tokenizer of {plan.student!r}")
        if max(self._tokenizer.get_vocab().values(), default=-1) >= self.vocabulary:
            raise EncoderError(f"{plan.student!r}: the tokenizer has more tokens than the model's {self.vocabulary}")
        self._tokenizer.enable_truncation(limit)
        self.facts = {"bert": dict(bert.config)}
        name = plan.student.partition("?")[0]
        self.ingredients = [{"name": shown_name(name), "licence": licence_of(name)}]

    def dim(self, wanted: int | None, teacher: int) -> int:
        """Return the wanted dimensions, or the BERT's own; at most those of the teacher."""
        return min(int(self._bert.config["hidden_size"]), teacher) if wanted is None else wanted

    def token_ids(self, sentences: list[str]) -> list[list[int]]:
        """Return the first tokens, special ones included."""
        with naming_failures(self._name):
            return first_ids(self._tokenizer, sentences, self._trained_on)

    def start(self, *_: Any) -> StudentStart:  # noqa: ANN401 - it has its weights, and needs nothing
        """Return the weights; the head is found when training begins."""
        return dict(self._bert.tensors)

    @cached_property
    def key(self) -> str:
        """A hash of all weights."""
        digest = hashlib.sha256(json.dumps(dict(self._bert.config)).encode() + self.tokenizer)
        for name, array in sorted(self._bert.tensors.items()):
            digest.update(name.encode() + np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


def open_bert(name: str, *, threads: int | None, progress: Progress) -> Bert:
    """Open the BERT of a name: `st:FOLDER`, `onnx:FOLDER` or a short name, with `?layers=3` for some of its layers."""
    options, request = parse_name(name).take(layers=at_least(1))
    if request.query:
        raise InputError(f"student {name!r} has no option {next(iter(request.query))!r}; it has: layers")
    if request.scheme == "st" and not request.entry:
        bert = read_bert(request.path)
    elif request.scheme == "onnx":
        bert = _bert_of_graph(request.path, name.partition("?")[0], threads=threads, progress=progress)
    else:
        raise InputError(
            f"student {name!r}: a student is `static`, or a BERT: st:FOLDER, onnx:FOLDER, or a short name of that kind "
            "such as minilm or gte-small"
        )
    return bert.with_layers(options["layers"]) if "layers" in options else bert


def _bert_of_graph(folder: Path, name: str, *, threads: int | None, progress: Progress) -> Bert:
    """Read a BERT from its graph. The graph does not say how many heads there are: try which number fits."""
    from ensembed.distil.bert_student import same_vectors

    file = next((path for path in (folder / "model.onnx", folder / "onnx" / "model.onnx") if path.is_file()), None)
    if file is None:
        raise InputError(f"student {name!r}: there is no model.onnx in {folder}")
    tokenizer = (folder / "tokenizer.json").read_bytes() if (folder / "tokenizer.json").is_file() else b""
    encoder = open_encoder(name, threads=threads, progress=progress)  # which checks all files
    limit = encoder.spec.max_length
    wanted = read_object(folder / "config.json", "fetch the model again").get("num_attention_heads")
    first = (wanted,) if type(wanted) is int and 0 < wanted <= 1024 else ()
    bert = read_bert_graph(file, tokenizer, 1, limit)
    hidden = int(bert.config["hidden_size"])
    for heads in dict.fromkeys((*first, *_HEADS)):
        if hidden % heads == 0:
            candidate = Bert({**bert.config, "num_attention_heads": heads}, bert.tensors, tokenizer, bert.max_length)
            if same_vectors(candidate, encoder):
                return candidate
    raise InputError(f"student {name!r}: its graph is not a BERT with mean pooling; start from a folder, st:FOLDER")


def _members(teacher: Encoder | Path) -> list[Encoder]:
    """Return the encoders behind a teacher."""
    if isinstance(teacher, MetaEncoder):
        return [teacher.members[j] for j in teacher.meta.counted]
    return [teacher] if isinstance(teacher, Encoder) else []


def _tokenizer_of(encoder: Encoder) -> Tokenizer | None:
    """Return a copy of an encoder's tokenizer, without truncation, if it is one of the tokenizers library."""
    from tokenizers import Tokenizer

    own = getattr(encoder, "_tokenizer", None)
    if not isinstance(own, Tokenizer):
        return None
    return read_tokenizer(own.to_str().encode(), f"the tokenizer of {encoder.spec.name!r}")
