"""A transformer student in training: BERT of any size, mean pooling and a linear head, in plain torch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from ensembed.distil.distil_job import Job, Rows, split_rows
from ensembed.distil.student_training import Student, cosine_loss
from ensembed.encoders.base import PROBES, Encoder, naming_failures
from ensembed.errors import ModelError
from ensembed.numerics.row_matrices import unit_rows

if TYPE_CHECKING:
    from ensembed.distil.bert_files import Bert

HEAD = "head.weight"
HEAD_BIAS = "head.bias"
_RIDGE_SENTENCES = 4096
_RIDGE = 1e-3  # of the mean variance of the pooled states
_DECAY = 0.01
_CLIP = 1.0  # the largest length of a gradient
_BETAS = (0.9, 0.999)
_EPSILON = 1e-8
_SAME = 0.9999  # the least cosine of vectors that are the same but for rounding


class BertNetwork:
    """BERT and the mean over the tokens, from weights by transformers' names.

    Args:
        config: transformers' configuration.
        parameters: the weights.
        device: where they are.
    """

    def __init__(self, config: Mapping[str, Any], parameters: Mapping[str, Tensor], device: Any) -> None:  # noqa: ANN401 - torch's own type
        self._heads, self._layers = int(config["num_attention_heads"]), int(config["num_hidden_layers"])
        self._epsilon = float(config["layer_norm_eps"])
        self._parameters, self._device = parameters, device

    def pooled(self, rows: Rows) -> Tensor:
        """Return the mean hidden states [b, h] of sentences."""
        P = self._parameters
        ids, mask = padded(rows)
        ids, mask = torch.from_numpy(ids).to(self._device), torch.from_numpy(mask).to(self._device)
        b, length = ids.shape
        X = P["embeddings.word_embeddings.weight"][ids] + P["embeddings.position_embeddings.weight"][:length]
        X = self._norm("embeddings.LayerNorm", X + P["embeddings.token_type_embeddings.weight"][0])
        allowed = mask[:, None, None, :]
        for i in range(self._layers):
            layer = f"encoder.layer.{i}"
            Q, K, V = (
                self._linear(f"{layer}.attention.self.{part}", X).view(b, length, self._heads, -1).transpose(1, 2)
                for part in ("query", "key", "value")
            )
            A = (
                functional.scaled_dot_product_attention(Q, K, V, attn_mask=allowed)
                .transpose(1, 2)
                .reshape(b, length, -1)
            )
            X = self._norm(
                f"{layer}.attention.output.LayerNorm", X + self._linear(f"{layer}.attention.output.dense", A)
            )
            H = self._linear(f"{layer}.output.dense", functional.gelu(self._linear(f"{layer}.intermediate.dense", X)))
            X = self._norm(f"{layer}.output.LayerNorm", X + H)
        counts = mask.sum(dim=1, keepdim=True).clamp(min=1)
        return (X.float() * mask[:, :, None]).sum(dim=1) / counts

    def _linear(self, name: str, X: Tensor) -> Tensor:
        return functional.linear(X, self._parameters[f"{name}.weight"], self._parameters[f"{name}.bias"])

    def _norm(self, name: str, X: Tensor) -> Tensor:
        weight, bias = self._parameters[f"{name}.weight"], self._parameters[f"{name}.bias"]
        return functional.layer_norm(X, weight.shape, weight, bias, self._epsilon)


class BertStudent(Student):
    """A BERT whose hidden states are averaged over the tokens and mapped to the teacher's space.

    The head starts as the ridge regression of the teacher's vectors on the averages, over some thousand sentences.
    """

    by_length = True

    def __init__(self, job: Job, device: Any) -> None:  # noqa: ANN401 - torch's own type
        self._device = device
        tensors = {name: torch.from_numpy(array.copy()).float().to(device) for name, array in job.start().items()}
        self._parameters = {name: tensor.requires_grad_() for name, tensor in tensors.items()}
        self._network = BertNetwork(job.facts["bert"], self._parameters, device)
        if HEAD not in self._parameters:
            weight, bias = self._ridge(job)
            self._parameters.update({HEAD: weight.requires_grad_(), HEAD_BIAS: bias.requires_grad_()})
        self._first = {name: torch.zeros_like(tensor) for name, tensor in self._parameters.items()}
        self._second = {name: torch.zeros_like(tensor) for name, tensor in self._parameters.items()}
        self._steps = torch.zeros(1)

    def step(self, rows: Rows, rate: float, leading: Sequence[int]) -> Tensor:
        """Take one step of AdamW, with gradients of bounded length."""
        with self._precision():
            pooled = self._network.pooled(rows)
        Y = functional.linear(pooled.float(), self._parameters[HEAD], self._parameters[HEAD_BIAS])
        loss = cosine_loss(Y, torch.from_numpy(rows.targets).to(self._device), leading)
        names = list(self._parameters)
        gradients = list(torch.autograd.grad(loss, [self._parameters[name] for name in names]))
        self._steps += 1
        shares = [1 - beta ** float(self._steps) for beta in _BETAS]
        with torch.no_grad():
            length = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
            torch._foreach_mul_(gradients, (_CLIP / (length + 1e-6)).clamp(max=1.0))
            weights = [self._parameters[name] for name in names]
            first, second = ([part[name] for name in names] for part in (self._first, self._second))
            torch._foreach_lerp_(first, gradients, 1 - _BETAS[0])
            torch._foreach_mul_(second, _BETAS[1])
            torch._foreach_addcmul_(second, gradients, gradients, 1 - _BETAS[1])
            roots = torch._foreach_sqrt(second)
            torch._foreach_div_(roots, math.sqrt(shares[1]))
            torch._foreach_add_(roots, _EPSILON)
            matrices = [weight for weight in weights if weight.ndim > 1]
            torch._foreach_mul_(matrices, 1 - rate * _DECAY)
            torch._foreach_addcdiv_(weights, first, roots, -rate / shares[0])
        return loss.detach()

    def vectors(self, rows: Rows) -> Tensor:
        """Return the head's output."""
        with torch.no_grad(), self._precision():
            pooled = self._network.pooled(rows)
            return functional.linear(pooled.float(), self._parameters[HEAD], self._parameters[HEAD_BIAS])

    def scale(self, factors: Tensor) -> None:
        """Scale the head."""
        with torch.no_grad():
            self._parameters[HEAD] *= factors[:, None]
            self._parameters[HEAD_BIAS] *= factors

    def weights(self) -> dict[str, Tensor]:
        """Return all weights, by the names that transformers gives them, and the head's."""
        return {name: tensor.detach() for name, tensor in self._parameters.items()}

    def moments(self) -> dict[str, Tensor]:
        """Return Adam's moments and the number of steps."""
        first = {f"first.{name}": tensor for name, tensor in self._first.items()}
        return first | {f"second.{name}": tensor for name, tensor in self._second.items()} | {"steps": self._steps}

    def _precision(self) -> AbstractContextManager[Any]:
        """Compute products in bfloat16 on CUDA; weights, sums and Adam stay float32."""
        if self._device.type != "cuda":
            return nullcontext()
        cast: AbstractContextManager[Any] = torch.autocast("cuda", torch.bfloat16)
        return cast

    def _ridge(self, job: Job) -> tuple[Tensor, Tensor]:
        """Return the head [d, h] and its bias that predict the teacher's vectors best."""
        _, to_train = split_rows(len(job), int(job.facts["training"]["seed"]))
        order = np.random.default_rng(0).permutation(to_train)[:_RIDGE_SENTENCES]
        order = order[np.argsort(job.lengths[order], kind="stable")]
        X, T = [], []
        with torch.no_grad(), self._precision():
            for numbers in np.array_split(order, -(-len(order) // 64)):
                rows = job.rows(numbers)
                X.append(self._network.pooled(rows).double().cpu())
                T.append(torch.from_numpy(rows.targets).double())
        pooled, targets = torch.cat(X), torch.cat(T)
        mean = pooled.mean(0)
        pooled = pooled - mean
        S = pooled.T @ pooled
        S += torch.eye(len(S), dtype=S.dtype) * (_RIDGE * S.diagonal().mean() + 1e-12)
        M = torch.linalg.solve(S, pooled.T @ (targets - targets.mean(0)))
        if not bool(M.isfinite().all()):
            raise ModelError(f"{job.folder}: the student's hidden states are not finite")
        bias = targets.mean(0) - mean @ M
        return M.T.contiguous().float().to(self._device), bias.float().to(self._device)


def padded(rows: Rows) -> tuple[np.ndarray[Any, np.dtype[np.int64]], np.ndarray[Any, np.dtype[np.bool_]]]:
    """Return token numbers [b, l], zero where a sentence is shorter, and a mask of the tokens."""
    lengths = np.diff(rows.offsets)
    mask = np.arange(max(1, int(lengths.max(initial=1)))) < lengths[:, None]
    ids = np.zeros(mask.shape, np.int64)
    ids[mask] = rows.tokens
    return ids, mask


def same_vectors(bert: Bert, encoder: Encoder) -> bool:
    """Return whether a BERT with mean pooling gives an encoder's vectors of the probe sentences."""
    from tokenizers import Tokenizer

    with naming_failures(encoder.spec.name):
        tokenizer = Tokenizer.from_buffer(bert.tokenizer)
        tokenizer.no_padding()
        ids = [encoding.ids for encoding in tokenizer.encode_batch(PROBES)]
    offsets = np.cumsum([0, *map(len, ids)])
    tokens = np.concatenate([np.array(row, np.int64) for row in ids])
    parameters = {name: torch.from_numpy(array) for name, array in bert.tensors.items()}
    with torch.no_grad():
        network = BertNetwork(bert.config, parameters, torch.device("cpu"))
        vectors = network.pooled(Rows(tokens, offsets, np.empty((0, 0), np.float32))).numpy()
    cosines = np.einsum("ij,ij->i", unit_rows(vectors), unit_rows(encoder.encode(PROBES)))
    return bool(cosines.min() > _SAME)
