"""What every encoder can be told by its name: text in front of each sentence, fewer dimensions, length one."""

from __future__ import annotations

from dataclasses import replace

from ensembed.encoders.base import Encoder, EncoderSpec, FloatArray
from ensembed.errors import InputError
from ensembed.numerics.row_matrices import unit_rows


class AdjustedEncoder(Encoder):
    """An encoder with a prefix, truncated or normalised vectors; in this order, as sentence-transformers does it.

    Args:
        encoder: the encoder.
        prefix: put before every sentence, as `query: ` for the E5 family.
        truncate_dim: keep the first so many dimensions; for models trained to be cut (Matryoshka).
        normalize: scale the vectors to length one; a zero vector stays zero. None leaves them as they are.

    Example:
        >>> from ensembed.encoders.demo_encoder import DemoEncoder
        >>> AdjustedEncoder(DemoEncoder(dim=8), prefix="query: ", truncate_dim=4).encode(["a dog"]).shape
        (1, 4)
    """

    def __init__(
        self, encoder: Encoder, *, prefix: str = "", truncate_dim: int | None = None, normalize: bool | None = None
    ) -> None:
        spec = encoder.spec
        dim = spec.dim if truncate_dim is None else truncate_dim
        if not 1 <= dim <= spec.dim:
            raise InputError(f"encoder {spec.name!r} has {spec.dim} dimensions: truncate_dim cannot be {dim}")
        if normalize is False and spec.normalize and dim == spec.dim:
            raise InputError(f"encoder {spec.name!r} itself gives vectors of length one: normalize cannot be false")
        self._encoder = encoder
        self._prefix = prefix
        # Parts of a unit vector are no unit vectors: a truncated encoder is normalised only where this asks for it.
        unit = normalize is True or (spec.normalize and dim == spec.dim)
        extra = dict(spec.extra) | ({} if dim == spec.dim else {"truncated_from": str(spec.dim)})
        self._spec = replace(
            spec, dim=dim, prompt=spec.prompt + prefix, normalize=unit, extra=tuple(sorted(extra.items()))
        )

    @property
    def spec(self) -> EncoderSpec:
        """The encoder's own, changed: equal to it where nothing is."""
        return self._spec

    @property
    def cacheable(self) -> bool:
        """As the encoder is."""
        return self._encoder.cacheable

    @property
    def concurrent(self) -> bool:
        """As the encoder is."""
        return self._encoder.concurrent

    def embed(self, sentences: list[str]) -> FloatArray:
        """The encoder's vectors of the prefixed sentences, cut and scaled."""
        vectors = self._encoder.encode([self._prefix + sentence for sentence in sentences])[:, : self._spec.dim]
        return unit_rows(vectors) if self._spec.normalize else vectors
