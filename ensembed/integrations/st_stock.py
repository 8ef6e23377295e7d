"""A meta-encoder as a `SentenceTransformer` of the library's own modules alone, where that is possible.

The library runs its modules one after the other, and none of them adds up or joins the vectors of two encoders
(`Router` sends each input down one way). So it is possible where the vectors depend on one member: it is the only one,
or the others have weight 0.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ensembed.encoders import AdjustedEncoder, Encoder
from ensembed.encoders.st_encoder import SentenceTransformerEncoder
from ensembed.errors import InputError
from ensembed.integrations.st_modules import base_modules, torch
from ensembed.methods.projections import Dense, Placement, Projection
from ensembed.models.ensemble import MetaEncoder
from ensembed.support.extras import import_extra

Module: TypeAlias = Any
"""A module of the library."""

_PROMPT = "ensembed"


def to_stock_sentence_transformer(model: MetaEncoder, *, device: str | None = None) -> Any:  # noqa: ANN401 - the library's own class
    """A `SentenceTransformer` of stock modules that gives the model's vectors, to 1e-6 of their length.

    Saved, it opens anywhere as `SentenceTransformer(folder)`, without ensembed and without trust_remote_code. Its
    weights are a copy.

    Args:
        model: a meta-encoder whose vectors depend on one member, a float32 `st:` model.
        device: where to put it; None takes a GPU if there is one.

    Raises:
        InputError: stock modules cannot express it; the message says what stands in the way.
    """
    if not isinstance(model, MetaEncoder):
        raise InputError(f"stock modules are made from a meta-encoder, not from a {type(model).__name__}")
    counted = model.meta.counted
    if len(counted) != 1:
        names = ", ".join(repr(model.ensemble.encoders[j].spec.name) for j in counted)
        raise InputError(
            f"{len(counted)} members count ({names}), and no module of sentence-transformers joins the vectors of two: "
            "use to_sentence_transformer, or fit on one member"
        )
    (j,) = counted
    member = model.ensemble.encoders[j]
    inner = _library_model(member)
    modules = [*_front(member, inner), *([base_modules.Normalize()] if model.meta.normalize else [])]
    modules += _projection(model.meta.projections[j], model.meta.dim)
    # `encode_query` and `encode_document` would take the model's own prompts, and members have one for everything.
    prompt = member.spec.prompt
    return import_extra("sentence_transformers", "st", "to_stock_sentence_transformer").SentenceTransformer(
        modules=modules,
        prompts={"query": prompt, "document": prompt} | ({_PROMPT: prompt} if prompt else {}),
        default_prompt_name=_PROMPT if prompt else None,
        device=device,
    )


def _library_model(member: Encoder) -> Any:  # noqa: ANN401 - a SentenceTransformer
    """The library's model of a member."""
    name, extra = member.spec.name, dict(member.spec.extra)
    inner = member._encoder if isinstance(member, AdjustedEncoder) else member
    if not isinstance(inner, SentenceTransformerEncoder):
        raise InputError(f"member {name!r} is no model of sentence-transformers (st:...): stock modules cannot hold it")
    reasons = {
        "trust_remote_code": "runs code of its own",
        "task": "treats queries and documents differently",
    }
    for key, reason in reasons.items():
        if key in extra:
            raise InputError(f"member {name!r} {reason}: that needs more than stock modules")
    if extra["precision"] != "float32":
        raise InputError(
            f"member {name!r} has {extra['precision']} weights, to which the library would round the projection: "
            "open it with precision=float32"
        )
    if "prompt" in extra and member.spec.prompt != inner.spec.prompt:
        raise InputError(f"member {name!r} has a prompt that is not pooled and a prefix that is: leave one out")
    return inner._model


def _front(member: Encoder, inner: Any) -> Iterator[Module]:  # noqa: ANN401 - a SentenceTransformer
    """The member's own modules, and what its name asks for behind them."""
    yield from (copy.deepcopy(module) for module in inner)
    modules_dim = _modules_dim(inner)
    if member.spec.dim < modules_dim:
        yield _linear(np.eye(modules_dim, member.spec.dim, dtype=np.float32))
    if isinstance(member, AdjustedEncoder) and member.spec.normalize:
        yield base_modules.Normalize()


def _modules_dim(inner: Any) -> int:  # noqa: ANN401 - a SentenceTransformer
    """What the last module gives: the model itself may be set to keep less."""
    with inner.truncate_embeddings(None):
        dim: int = inner.get_embedding_dimension()
        return dim


def _projection(projection: Projection, dim: int) -> list[Module]:
    if isinstance(projection, Placement):
        if (projection.start, projection.columns, projection.scale) == (0, dim, 1):
            return []
        matrix = np.zeros((projection.columns, dim), np.float32)
        target = matrix[:, projection.start : projection.start + projection.columns]
        np.fill_diagonal(target, projection.scale)
        return [_linear(matrix)]
    if isinstance(projection, Dense):
        return [_linear(projection.matrix, -projection.offset)]
    modules: list[Module] = []
    between = {"relu": torch.nn.ReLU, "tanh": torch.nn.Tanh, "unit": torch.nn.Identity}[projection.activation]
    *first, last = projection.layers
    for layer in first:
        modules.append(_linear(layer.matrix, layer.bias, between()))
        modules += [base_modules.Normalize()] if projection.activation == "unit" else []
    around = (projection.start, dim - projection.start - last.matrix.shape[1])
    return [*modules, _linear(np.pad(last.matrix, ((0, 0), around)), np.pad(last.bias, around))]


def _linear(matrix: NDArray[np.float32], bias: NDArray[np.float32] | None = None, activation: object = None) -> Module:
    """The library's dense layer x -> activation(x' matrix + bias)."""
    return base_modules.Dense(
        *matrix.shape,
        bias=bias is not None,
        activation_function=activation,
        init_weight=torch.from_numpy(np.ascontiguousarray(matrix.T)),
        init_bias=None if bias is None else torch.from_numpy(np.array(bias)),
    )
