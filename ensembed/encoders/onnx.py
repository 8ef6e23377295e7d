"""Transformers in ONNX form: a `tokenizer.json` and a `model.onnx`, on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensembed.cores import available_cores
from ensembed.encoders.base import Encoder, EncoderSpec, FloatArray
from ensembed.encoders.fingerprints import revision_of_folder
from ensembed.encoders.names import Request
from ensembed.errors import EncoderError, InputError

# Tokens per run, padding included: more only costs memory.
_BATCH_TOKENS = 8192


class OnnxEncoder(Encoder):
    """A transformer whose last hidden states are averaged over the sentence's tokens.

    Args:
        folder: holds `model.onnx` and `tokenizer.json`.
        name: what to call it.
        revision: pins the weights.
        max_length: tokens beyond this many are cut off, the special ones included.
        positions: the most tokens that the model can take.
        batch_size: sentences per run at the most. Dynamically quantised (int8) graphs need 1: they choose one scale
            for all the activations of a run, so that a sentence's vector would depend on its neighbours (cosines
            down to 0.97 seen).
        threads: for the matrix products; None takes all cores.
    """

    def __init__(
        self,
        folder: Path,
        *,
        name: str,
        revision: str,
        max_length: int,
        positions: int = 512,
        pooling: str = "mean",
        batch_size: int = 32,
        threads: int | None = None,
    ) -> None:
        import onnxruntime
        from tokenizers import Tokenizer

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads or available_cores()
        options.inter_op_num_threads = 1
        options.log_severity_level = 3  # its warnings concern devices that we do not use
        try:
            self._session = onnxruntime.InferenceSession(
                folder / "model.onnx", options, providers=["CPUExecutionProvider"]
            )
            self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as error:  # both libraries raise bare Exceptions of their own
            raise EncoderError(f"encoder {name!r} cannot be opened from {folder}: {error}") from error
        special = self._tokenizer.num_special_tokens_to_add(is_pair=False)
        if not special < max_length <= positions:
            raise InputError(
                f"encoder {name!r}: max_length must be from {special + 1} to {positions}, not {max_length}"
            )
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(max_length)
        self._inputs = [node.name for node in self._session.get_inputs()]
        self._batch_size = batch_size
        dim = self._session.get_outputs()[0].shape[-1]
        self._spec = EncoderSpec(name, "onnx", dim, revision, max_length=max_length, pooling=pooling)

    @property
    def spec(self) -> EncoderSpec:
        """Everything that changes the numbers."""
        return self._spec

    def embed(self, sentences: list[str]) -> FloatArray:
        """Mean-pooled vectors; sentences of like length run together, so that little is padded."""
        tokens = [encoding.ids for encoding in self._tokenizer.encode_batch_fast(sentences)]
        result = np.empty((len(sentences), self._spec.dim), np.float32)
        for rows in self._batches(tokens):
            ids = np.zeros((len(rows), len(tokens[rows[-1]])), np.int64)
            for i, row in enumerate(rows):
                ids[i, : len(tokens[row])] = tokens[row]
            lengths = np.array([len(tokens[row]) for row in rows])
            result[rows] = self._run(ids, np.arange(ids.shape[1]) < lengths[:, None])
        return result

    def _batches(self, tokens: list[list[int]]) -> Iterator[list[int]]:
        """Row numbers in batches, in order of length, the longest of a batch last."""
        batch: list[int] = []
        for row in sorted(range(len(tokens)), key=lambda row: len(tokens[row])):
            if len(batch) == self._batch_size or (batch and (len(batch) + 1) * len(tokens[row]) > _BATCH_TOKENS):
                yield batch
                batch = []
            batch.append(row)
        if batch:
            yield batch

    def _run(self, ids: NDArray[np.int64], mask: NDArray[np.bool_]) -> FloatArray:
        feeds: dict[str, Any] = {
            "input_ids": ids,
            "attention_mask": mask.astype(np.int64),
            "token_type_ids": np.zeros_like(ids),
        }
        hidden = self._session.run(None, {name: feeds[name] for name in self._inputs})[0]
        total = np.einsum("bld,bl->bd", hidden, mask.astype(np.float32))
        return np.asarray(total / mask.sum(axis=1, keepdims=True), np.float32)


def open_onnx(request: Request) -> OnnxEncoder:
    """`onnx:DIR`, or a short name of the catalogue."""
    options = request.options(max_length=int)
    folder = request.path
    revision = request.revision or revision_of_folder(folder, progress=request.progress)
    return OnnxEncoder(folder, name=request.name, revision=revision, threads=request.threads, **options)
