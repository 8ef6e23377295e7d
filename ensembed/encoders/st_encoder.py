"""`st:NAME-OR-PATH`: models of sentence-transformers, from a folder or from the hub."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from copy import copy
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from ensembed.encoders.base import Encoder, EncoderSpec, naming_failures
from ensembed.encoders.names_and_consent import Convert, Request, at_least, flag, one_of, place_effects
from ensembed.encoders.st_loading import code_repositories, fetch, import_libraries, load, quiet, revision_of_model
from ensembed.encoders.token_ids import cut
from ensembed.errors import EncoderError, InputError
from ensembed.fetch import hub_files as hub

OPENS = "NAME-OR-PATH of a sentence-transformers model"

# The prompts that the library's `encode_query` and `encode_document` look for, in this order.
_TASKS = {"query": ("query",), "document": ("document", "passage", "corpus")}

_NO_LIMIT = 10**9  # tokenizers without a limit say that it is 1e30, or infinite


class SentenceTransformerEncoder(Encoder):
    """A model that sentence-transformers opens: the vectors of its `encode`, `encode_query` or `encode_document`.

    Args:
        folder: the model's files. Nothing else is read and no request goes out, unless code from elsewhere is trusted.
        name, revision: the encoder's name, and what pins the weights.
        prompt: one of the model's prompts, or `query` or `document` for `encode_query` or `encode_document`.
        max_length: the most tokens to use, special ones included; None for the model's own limit.
        device: where to compute: `cpu`, `cuda`, `cuda:1`, `mps`; None takes a GPU if there is one.
        precision: of the weights: `float32`, `float16` or `bfloat16`. The vectors are float32.
        batch_size: sentences per run; None for 32, or 1 for rounded weights on a CPU: neighbours change vectors.
        trust_remote_code: whether to run code that comes with the model. It can do anything that you can.
        threads: cores to use while encoding; None leaves torch's number alone.
    """

    def __init__(
        self,
        folder: Path,
        *,
        name: str,
        revision: str,
        prompt: str | None = None,
        max_length: int | None = None,
        device: str | None = None,
        precision: str = "float32",
        batch_size: int | None = None,
        trust_remote_code: bool = False,
        threads: int | None = None,
    ) -> None:
        self._torch = import_libraries(name)[2]
        if device is not None:
            try:
                self._torch.empty(1, device=device)
            except (RuntimeError, AssertionError, NotImplementedError) as error:  # each kind of device has its own
                raise InputError(f"encoder {name!r}: there is no device {device!r} here: {error}") from error
        self._name, self._threads = name, threads
        self._prompt, self._trusts_code = prompt, trust_remote_code
        self._model = load(name, folder, device=device, precision=precision, trust_remote_code=trust_remote_code)
        # Tokenizers keep truncation and padding as state, which calls from several threads would change together.
        self._lock = threading.Lock()
        batch_size = batch_size or (1 if precision != "float32" and self._model.device.type == "cpu" else 32)
        self._batch_size, self._precision = batch_size, precision
        task, text = self._use_prompt(prompt)
        longest = self._model.max_seq_length
        self._max_length = int(longest) if longest is not None and longest < _NO_LIMIT else None
        if max_length is not None:
            self._limit_length(max_length)
        normalized = type(self._model[-1]).__name__ == "Normalize" and self._model.truncate_dim is None
        normalized = normalized and precision == "float32"
        dim, pooling, extras = self._probe("a").shape[1], "as in modules.json", self._extras(task, text)
        self._spec = EncoderSpec(name, "st", dim, revision, text, self._max_length, pooling, normalized, extras)

    def _use_prompt(self, prompt: str | None) -> tuple[str | None, str]:
        """Encode with a prompt from now on; return the task, if the prompt belongs to one, and its text."""
        task, text = self._find_prompt(prompt)
        encode = {"query": self._model.encode_query, "document": self._model.encode_document}.get(task or "")
        self._encode = encode or self._model.encode
        self._arguments = {"prompt": text, "batch_size": self._batch_size, "show_progress_bar": False}
        return task, text

    @property
    def device(self) -> str:
        """Where torch computes."""
        return str(self._model.device)

    @cached_property
    def query_encoder(self) -> Encoder:
        """The encoder with the model's prompt for queries; this one if its name has a prompt."""
        return self._for_task("query")

    @cached_property
    def document_encoder(self) -> Encoder:
        """The encoder with the model's prompt for documents; this one if its name has a prompt."""
        return self._for_task("document")

    def _for_task(self, task: str) -> Encoder:
        if self._prompt is not None:
            return self
        text = self._find_prompt(task)[1]
        extras = self._extras(task, text)
        if (text, extras) == (self._spec.prompt, self._spec.extra):
            return self
        encoder = copy(self)
        encoder.__dict__.pop("query_encoder", None)
        encoder.__dict__.pop("document_encoder", None)
        encoder._prompt = task
        encoder._use_prompt(task)
        encoder._spec = replace(self._spec, prompt=text, extra=extras)
        return encoder

    def _extras(self, task: str | None, text: str) -> tuple[tuple[str, str], ...]:
        """Return what changes the vectors besides the prompt's text."""
        extra = {"precision": self._precision}
        if self._precision != "float32":  # these change rounded vectors only: see `batch_size`
            extra |= {"batch_size": str(self._batch_size), "device": self._model.device.type}
        chat = bool(getattr(self._tokenizer(), "chat_template", None))
        settings = ("query_length", "document_length", "query_expansion")
        by_task = any(getattr(self._model[0], key, None) for key in settings)
        if task and (self._trusts_code or chat or by_task or self._is_router()):
            extra["task"] = task  # queries and documents may differ by more than the prompt
        if text and (chat or any(getattr(m, "include_prompt", True) is False for m in self._model.modules())):
            extra["prompt"] = "apart"  # it is left out of the mean, or a chat message of its own
        if self._trusts_code:  # the model's code may compute something else than the library's
            extra["trust_remote_code"] = "true"
        return tuple(sorted(extra.items()))

    def embed(self, sentences: list[str]) -> NDArray[Any]:
        """Return the library's vectors; it runs sentences of similar length together."""
        threads = nullcontext() if self._threads is None else using_threads(self._torch, self._threads)
        with self._lock, threads:
            vectors: NDArray[Any] = self._encode([self._cut(s) for s in sentences], **self._arguments)
        return vectors

    def _find_prompt(self, prompt: str | None) -> tuple[str | None, str]:
        """Return the task, if the prompt belongs to one, and the text that the library would take."""
        prompts: dict[str, str] = self._model.prompts
        default = self._model.default_prompt_name
        if prompt in _TASKS:
            key = next((candidate for candidate in _TASKS[prompt] if candidate in prompts), default)
            return prompt, prompts.get(key, "") or ""
        if prompt is not None and prompt not in prompts:
            known = ", ".join(sorted(prompts.keys() | _TASKS.keys()))
            raise InputError(f"encoder {self._name!r} has no prompt {prompt!r}; it has: {known}")
        return None, prompts.get(prompt or default, "") or ""

    def _limit_length(self, max_length: int) -> None:
        tokenizer = self._tokenizer()
        if tokenizer is None or self._max_length is None:
            raise InputError(f"encoder {self._name!r} reads texts of any length: leave max_length out")
        least = tokenizer.num_special_tokens_to_add(pair=False) + 1
        config = getattr(getattr(self._model[0], "auto_model", None), "config", None)
        most = getattr(config, "max_position_embeddings", None) or math.inf
        if not least <= max_length <= most:
            raise InputError(f"encoder {self._name!r}: max_length must be from {least} to {most}, not {max_length}")
        longer = max_length > self._max_length
        self._model.max_seq_length = self._max_length = max_length
        if longer and most < math.inf:  # some models count positions from 2 on and take fewer tokens than they say
            try:
                self._probe("a " * max_length)
            except EncoderError as error:
                raise InputError(f"encoder {self._name!r} cannot take {max_length} tokens: lower max_length") from error

    def _tokenizer(self) -> Any:  # noqa: ANN401 - of transformers
        """Return the model's tokenizer, if it has a single one that cuts off the end of texts."""
        tokenizer = None if self._is_router() else getattr(self._model, "tokenizer", None)
        return tokenizer if getattr(tokenizer, "truncation_side", None) == "right" else None

    def _cut(self, sentence: str) -> str:
        tokenizer = self._tokenizer()
        if tokenizer is None or self._max_length is None:
            return sentence
        length = max(self._max_length, *(getattr(self._model[0], f"{task}_length", None) or 0 for task in _TASKS))

        def first_ids(text: str) -> list[int]:
            ids: list[int] = tokenizer(text, truncation=True, max_length=length, padding=False)["input_ids"]
            return ids

        return cut(sentence, length, first_ids)

    def _is_router(self) -> bool:
        return any(type(module).__name__ in ("Router", "Asym") for module in self._model)

    def _probe(self, sentence: str) -> NDArray[Any]:
        try:
            with quiet():
                return self.embed([sentence])
        except Exception as error:  # whatever the model's modules raise
            hint = "; add ?prompt=query or ?prompt=document to its name" if self._is_router() else ""
            raise EncoderError(f"encoder {self._name!r} cannot encode: {error}{hint}") from error


_threads_lock = threading.Lock()
_threads_before: list[int] = []  # an entry for each block that runs, all the same: the number before the first of them


@contextmanager
def using_threads(torch: Any, threads: int) -> Iterator[None]:  # noqa: ANN401 - a module
    """Set torch's number of threads, which is one for the whole process, while a block runs; blocks may overlap."""
    with _threads_lock:
        _threads_before.append(_threads_before[0] if _threads_before else torch.get_num_threads())
        torch.set_num_threads(threads)
    try:
        yield
    finally:
        with _threads_lock:
            # Not only by the last block: each thread of the process has a number of its own besides the common one.
            torch.set_num_threads(_threads_before.pop())


def effects(request: Request) -> dict[str, str]:
    """Return what needs consent: the code of a model, and its place."""
    code = request.take(trust_remote_code=flag)[0].get("trust_remote_code")
    return ({"code": "runs code that comes with its weights"} if code else {}) | place_effects(request)


def open_st(request: Request) -> SentenceTransformerEncoder:
    """Open `st:NAME-OR-PATH`: a folder, or a hub model, without an organisation one of `sentence-transformers`."""
    types: dict[str, Convert] = {"prompt": str, "max_length": at_least(1), "device": str, "batch_size": at_least(1)}
    precision = one_of("float32", "float16", "bfloat16")
    options = request.options(**types, precision=precision, revision=str, trust_remote_code=flag)
    wanted = options.pop("revision", None)
    code = options.get("trust_remote_code", False)
    folder = request.path
    if folder.is_dir():
        if wanted is not None:
            raise InputError(f"encoder {request.name!r}: a revision is for models of the hub, and {folder} is a folder")
        revision = revision_of_model(folder, code=code, progress=request.progress)
    elif hub.is_hub_name(request.location):
        if not request.offline:
            import_libraries(request.name)  # before a long download
        repo = request.location if "/" in request.location else f"sentence-transformers/{request.location}"
        revision = hub.chosen_commit(repo, wanted, request.pinned, offline=request.offline)
        folder = fetch(repo, revision, code=code, offline=request.offline, progress=request.progress)
    else:
        raise InputError(f"encoder {request.name!r}: {folder} is neither a folder nor a name on the hub")
    if code:  # it may come from other repositories, and change there
        others = [hub.commit_of(other, offline=request.offline) for other in code_repositories(folder)]
        revision = "+".join([revision, *others])
    how: dict[str, Any] = {"name": request.name, "revision": revision, "threads": request.threads}
    with naming_failures(request.name):  # the library takes settings that make no sense, and fails later
        return SentenceTransformerEncoder(folder, **how, **options)
