"""A transformer student in training: BERT of any size, mean pooling and a linear head, in plain torch."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from ensembed.distil.distil_job import Job, Rows
from ensembed.distil.student_training import Loss, Student
from ensembed.encoders.base import PROBES, Encoder, naming_failures
from ensembed.errors import EncoderError, ModelError
from ensembed.numerics.process_group import Alone
from ensembed.numerics.row_matrices import unit_rows
from ensembed.numerics.torch_device import kernel_errors

if TYPE_CHECKING:
    from ensembed.distil.bert_files import Bert

HEAD = "head.weight"
HEAD_BIAS = "head.bias"
FUSED = "attention.self.qkv"
_LAYER = tuple(
    f"{part}.{kind}"
    for part in (
        *(FUSED, "attention.output.dense", "attention.output.LayerNorm"),
        *("intermediate.dense", "output.dense", "output.LayerNorm"),
    )
    for kind in ("weight", "bias")
)
_PARTS = tuple(f"attention.self.{part}" for part in ("query", "key", "value"))
_MULTIPLE = 8  # of which the length of padded sentences is one on CUDA: a graph for each, and rows that begin aligned
_RIDGE_SENTENCES = 4096
_RIDGE = 1e-3  # of the mean variance of the pooled states
_DECAY = 0.01
_CLIP = 1.0  # the largest length of a gradient
_BETAS = (0.9, 0.999)
_EPSILON = 1e-8
_SAME = 0.9999  # the least cosine of vectors that are the same but for rounding


Layer: TypeAlias = Callable[[Tensor, Tensor, int, float, Sequence[Tensor]], Tensor]
"""A layer of BERT: hidden states [b, l, h], whom each token may look at, heads, epsilon, weights as in `_LAYER`."""


def bert_layer(X: Tensor, allowed: Tensor, heads: int, epsilon: float, weights: Sequence[Tensor]) -> Tensor:
    """Return the hidden states after a layer; `allowed` [b, heads, l, l] is added before the softmax."""
    qkv, qkv_bias, out, out_bias, scale, shift, up, up_bias, down, down_bias, last_scale, last_shift = weights
    b, length, _ = X.shape
    # One gradient for all three, where indices make three to be filled and added.
    Q, K, V = functional.linear(X, qkv, qkv_bias).view(b, length, 3, heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
    A = functional.scaled_dot_product_attention(Q, K, V, attn_mask=allowed).transpose(1, 2).reshape(b, length, -1)
    X = functional.layer_norm(X + functional.linear(A, out, out_bias), scale.shape, scale, shift, epsilon)
    H = functional.linear(functional.gelu(functional.linear(X, up, up_bias)), down, down_bias)
    return functional.layer_norm(X + H, last_scale.shape, last_scale, last_shift, epsilon)


class BertNetwork:
    """BERT and the mean over the tokens, from weights by transformers' names, `fused` ones.

    Args:
        config: transformers' configuration.
        parameters: the weights.
    """

    def __init__(self, config: Mapping[str, Any], parameters: Mapping[str, Tensor]) -> None:
        self._heads, self._layers = int(config["num_attention_heads"]), int(config["num_hidden_layers"])
        self._epsilon = float(config["layer_norm_eps"])
        self._parameters = parameters
        self._fused: Layer | None = None
        self._longest = 0

    def fuse(self) -> int:
        """From now on, compute layers of short sentences with our own kernels; return the most tokens of these.

        It raises one of `kernel_errors` where there can be none, and so may the first sentences of a length.
        """
        from ensembed.distil.bert_kernels import LONGEST, check_heads, fused_layer

        check_heads(int(self._parameters[f"encoder.layer.0.{FUSED}.weight"].shape[1]), self._heads)
        self._fused, self._longest = fused_layer, LONGEST
        return LONGEST

    def pooled(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Return the mean hidden states [b, h] of sentences: token numbers [b, l], and which of them are tokens."""
        P = self._parameters
        b, length = ids.shape
        X = functional.embedding(ids, P["embeddings.word_embeddings.weight"])
        X = X + P["embeddings.position_embeddings.weight"][:length]
        X = X + P["embeddings.token_type_embeddings.weight"][0]
        norm = P["embeddings.LayerNorm.weight"]
        X = functional.layer_norm(X, norm.shape, norm, P["embeddings.LayerNorm.bias"], self._epsilon)
        X = X.to(P[f"encoder.layer.0.{FUSED}.weight"].dtype)
        counts = mask.sum(dim=1, keepdim=True).clamp(min=1)
        if self._fused is not None and length <= self._longest:
            layer, allowed = self._fused, counts[:, 0].int()
        else:
            # Made once, as numbers to add: a mask of truth values is turned into them in every layer.
            layer, allowed = bert_layer, torch.zeros(mask.shape, dtype=X.dtype, device=X.device)
            allowed = allowed.masked_fill_(~mask, -math.inf)[:, None, None, :].expand(b, self._heads, length, length)
        for i in range(self._layers):
            weights = [P[f"encoder.layer.{i}.{name}"] for name in _LAYER]
            X = layer(X, allowed, self._heads, self._epsilon, weights)
        return (X * mask[:, :, None]).sum(dim=1, dtype=torch.float32) / counts


def fused(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights with those of queries, keys and values of a layer in one matrix: one product, not three."""
    result: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        layer, part, kind = name.rpartition(f".{_PARTS[0]}.") if f".{_PARTS[0]}." in name else ("", "", "")
        if part:
            result[f"{layer}.{FUSED}.{kind}"] = torch.cat([tensors[f"{layer}.{part}.{kind}"] for part in _PARTS])
        elif not any(f".{part}." in name for part in _PARTS):
            result[name] = tensor
    return result


def separate(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return views of fused weights by transformers' names."""
    result: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        layer, part, kind = name.rpartition(f".{FUSED}.")
        if part:
            result |= {f"{layer}.{part}.{kind}": t for part, t in zip(_PARTS, tensor.chunk(3), strict=True)}
        else:
            result[name] = tensor
    return result


class _Batch(NamedTuple):
    """Token numbers [b, l], which of them are tokens, and the teacher's directions [b, d]."""

    ids: Tensor
    mask: Tensor
    targets: Tensor

    def on(self, device: Any) -> _Batch:  # noqa: ANN401 - torch's own type
        """Return the batch on a device."""
        return _Batch(*(tensor.to(device, non_blocking=True) for tensor in self))


@dataclass(frozen=True, eq=False)
class _Graph:
    """The recorded kernels of a step, where they read its batch, and where they write its loss."""

    graph: Any
    batch: _Batch
    loss: Tensor


class BertStudent(Student):
    """A BERT whose hidden states are averaged over the tokens and mapped to the teacher's space.

    The head starts as the ridge regression of the teacher's vectors on the averages, over some thousand sentences.
    On CUDA the layers compute with copies of the weights in bfloat16, made anew in every step; embeddings, head, sums
    over tokens, Adam and the weights themselves stay float32. A step there is one graph of all its kernels, recorded
    for each length of padded sentences: to launch them one by one takes longer than they do.

    In a group each process computes the vectors of its part of every batch, and their gradients, which are added up.
    The loss is that of the whole batch; there are no graphs.
    """

    by_length = True

    def __init__(self, job: Job, device: Any, group: Alone | None = None) -> None:  # noqa: ANN401 - torch's own type
        self._device, self._group = device, group or Alone()
        self._most = int(job.facts["bert"]["max_position_embeddings"])
        start = {name: torch.from_numpy(array.copy()).float() for name, array in job.start().items()}
        self._masters = {name: tensor.to(device).requires_grad_() for name, tensor in fused(start).items()}
        self._copies: dict[str, Tensor] = {}
        if device.type == "cuda":
            layers = {name: tensor for name, tensor in self._masters.items() if name.startswith("encoder.")}
            self._copies = {name: tensor.detach().bfloat16().requires_grad_() for name, tensor in layers.items()}
        self._parameters = self._masters | self._copies
        self._config = job.facts["bert"]
        self._network = BertNetwork(self._config, self._parameters)
        if device.type == "cuda":
            self._fuse(int(job.lengths.max(initial=1)))
        if HEAD not in self._masters:
            for name, tensor in zip((HEAD, HEAD_BIAS), self._ridge(job), strict=True):
                self._masters[name] = self._parameters[name] = tensor.requires_grad_()
        self._first = {name: torch.zeros_like(tensor) for name, tensor in self._masters.items()}
        self._second = {name: torch.zeros_like(tensor) for name, tensor in self._masters.items()}
        # CUDA reads them so, whatever they are: the default may be another one.
        self._steps = torch.zeros(1, dtype=torch.float32, device=device)
        self._rate = torch.zeros((), dtype=torch.float32, device=device)
        self._batch_size = int(job.facts["training"]["batch_size"])
        self._graphs: dict[int, _Graph] = {}

    def _fuse(self, longest: int) -> None:
        """Compute with our own kernels, if they can be made here for sentences of at most so many tokens."""
        network = BertNetwork(self._config, self._parameters)
        try:
            # The longest sentences need the largest tiles, for which a GPU may have no room.
            ids = torch.zeros(2, min(longest, network.fuse()), dtype=torch.int64, device=self._device)
            torch.autograd.grad(network.pooled(ids, ids == 0).sum(), list(self._copies.values()))
        except torch.cuda.OutOfMemoryError:
            raise
        except kernel_errors() as error:
            warnings.warn(f"training slower, without our own kernels: {error}", RuntimeWarning, stacklevel=2)
        else:
            self._network = network

    def step(self, rows: Rows, rate: float, loss: Loss) -> Tensor:
        """Take one step of AdamW, with gradients of bounded length."""
        batch = self._batch(rows)
        self._rate.fill_(rate)
        if self._device.type != "cuda" or len(rows.targets) != self._batch_size or self._group.size > 1:
            return self._update(batch.on(self._device), loss)
        length = batch.ids.shape[1]
        if length not in self._graphs:
            self._graphs[length] = self._recorded(batch, loss)
        graph = self._graphs[length]
        for place, tensor in zip(graph.batch, batch, strict=True):
            place.copy_(tensor, non_blocking=True)
        graph.graph.replay()
        return graph.loss

    def _batch(self, rows: Rows) -> _Batch:
        """Return sentences as tensors: for CUDA in memory that is copied while the device computes."""
        multiple = _MULTIPLE if self._device.type == "cuda" else 1
        arrays = (*padded(rows, multiple, self._most), rows.targets)
        tensors = (torch.from_numpy(array) for array in arrays)
        return _Batch(*(tensor.pin_memory() if self._device.type == "cuda" else tensor for tensor in tensors))

    def _recorded(self, batch: _Batch, loss: Loss) -> _Graph:
        """Record the kernels of a step for batches of this shape; nothing is computed yet."""
        places = batch.on(self._device)
        stream = torch.cuda.Stream(self._device)
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream):
            self._gradients(places, loss)  # libraries allocate at their first call, which a recording cannot
        torch.cuda.current_stream(self._device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        pool = next((known.graph.pool() for known in self._graphs.values()), None)
        with torch.cuda.graph(graph, pool=pool):
            value = self._update(places, loss)
        return _Graph(graph, places, value)

    def _gradients(self, batch: _Batch, loss: Loss) -> tuple[Tensor, list[Tensor]]:
        """Return the loss, and its gradients in float32, in the order of the masters."""
        self._copy()
        value = loss(self._of_group(batch), batch.targets)
        names = list(self._masters)
        gradients = torch.autograd.grad(value, [self._parameters[name] for name in names])
        whole = [torch.empty_like(g, dtype=torch.float32) if g.dtype != torch.float32 else g for g in gradients]
        halves = [k for k, gradient in enumerate(gradients) if gradient is not whole[k]]
        if halves:
            torch._foreach_copy_([whole[k] for k in halves], [gradients[k] for k in halves])
        if self._group.size > 1:
            sums = torch.cat([gradient.flatten() for gradient in whole])
            self._group.add_up(sums)
            parts = sums.split([gradient.numel() for gradient in whole])
            whole = [part.view_as(gradient) for part, gradient in zip(parts, whole, strict=True)]
        return value.detach(), whole

    def _of_group(self, batch: _Batch) -> Tensor:
        """Return the vectors [b, d] of a batch; in a group, those of its part have gradients, the others are sent."""
        rank, size, b = self._group.rank, self._group.size, len(batch.ids)
        if size == 1:
            return self._head(batch)
        start, stop = b * rank // size, b * (rank + 1) // size
        # A process without sentences computes one, and uses nothing of it: its gradient is zero.
        part = self._head(_Batch(*(tensor[start : max(stop, start + 1)] for tensor in batch)))[: stop - start]
        everything = torch.zeros_like(batch.targets)
        everything[start:stop] = part.detach()
        self._group.add_up(everything)
        return torch.cat([everything[:start], part, everything[stop:]])

    def _update(self, batch: _Batch, loss: Loss) -> Tensor:
        """Change the weights by one step, and return the loss."""
        value, gradients = self._gradients(batch, loss)
        with torch.no_grad():
            self._steps += 1
            length = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
            scale = (length / _CLIP).clamp(min=1.0)  # gradients are divided by it
            by_name = dict(zip(self._masters, gradients, strict=True))
            for decay in (_DECAY, 0.0):
                names = [name for name, tensor in self._masters.items() if (tensor.ndim > 1) == bool(decay)]
                torch._fused_adamw_(
                    *([part[name] for name in names] for part in (self._masters, by_name, self._first, self._second)),
                    [],
                    [self._steps] * len(names),
                    lr=self._rate,
                    beta1=_BETAS[0],
                    beta2=_BETAS[1],
                    weight_decay=decay,
                    eps=_EPSILON,
                    amsgrad=False,
                    maximize=False,
                    grad_scale=scale,
                )
        return value

    def _copy(self) -> None:
        """Make the copies that the layers compute with."""
        if self._copies:
            with torch.no_grad():
                torch._foreach_copy_(list(self._copies.values()), [self._masters[name] for name in self._copies])

    def vectors(self, rows: Rows) -> Tensor:
        """Return the head's output."""
        with torch.no_grad():
            self._copy()
            return self._head(self._batch(rows).on(self._device))

    def _head(self, batch: _Batch) -> Tensor:
        pooled = self._network.pooled(batch.ids, batch.mask)
        return functional.linear(pooled, self._parameters[HEAD], self._parameters[HEAD_BIAS])

    def scale(self, factors: Tensor) -> None:
        """Scale the head."""
        with torch.no_grad():
            self._masters[HEAD] *= factors[:, None]
            self._masters[HEAD_BIAS] *= factors

    def weights(self) -> dict[str, Tensor]:
        """Return all weights, by the names that transformers gives them, and the head's."""
        return separate({name: tensor.detach() for name, tensor in self._masters.items()})

    def moments(self) -> dict[str, Tensor]:
        """Return Adam's moments and the number of steps."""
        first = {f"first.{name}": tensor for name, tensor in self._first.items()}
        return first | {f"second.{name}": tensor for name, tensor in self._second.items()} | {"steps": self._steps}

    def _ridge(self, job: Job) -> tuple[Tensor, Tensor]:
        """Return the head [d, h] and its bias that predict the teacher's vectors best."""
        _, to_train = job.split()
        order = np.random.default_rng(0).permutation(to_train)[:_RIDGE_SENTENCES]
        order = order[np.argsort(job.lengths[order], kind="stable")]
        X, T = [], []
        with torch.no_grad():
            for numbers in np.array_split(order, -(-len(order) // 64)):
                rows = job.rows(numbers)
                batch = self._batch(rows).on(self._device)
                X.append(self._network.pooled(batch.ids, batch.mask).double().cpu())
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


def padded(
    rows: Rows, multiple: int = 1, most: int | None = None
) -> tuple[np.ndarray[Any, np.dtype[np.int64]], np.ndarray[Any, np.dtype[np.bool_]]]:
    """Return token numbers [b, l], zero where a sentence is shorter, and a mask of the tokens.

    The length l is that of the longest sentence, rounded up to a multiple, but to no more than `most`.
    """
    lengths = np.diff(rows.offsets)
    length = -(-max(1, int(lengths.max(initial=1))) // multiple) * multiple
    mask = np.arange(length if most is None else min(length, most)) < lengths[:, None]
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
    if tokens.max(initial=0) >= bert.config["vocab_size"]:
        raise EncoderError(
            f"{encoder.spec.name!r}: the tokenizer gives the token {tokens.max()}, and the model has "
            f"{bert.config['vocab_size']}; fetch both again"
        )
    parameters = fused({name: torch.from_numpy(array) for name, array in bert.tensors.items()})
    rows = padded(Rows(tokens, offsets, np.empty((0, 0), np.float32)))
    with torch.no_grad():
        vectors = BertNetwork(bert.config, parameters).pooled(*(torch.from_numpy(array) for array in rows)).numpy()
    cosines = np.einsum("ij,ij->i", unit_rows(vectors), unit_rows(encoder.encode(PROBES)))
    return bool(cosines.min() > _SAME)
