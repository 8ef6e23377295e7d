"""Schemes: which function opens `SCHEME:…`. An installed package adds its own through an entry point.

A package that has, in its pyproject.toml::

    [project.entry-points."ensembed.encoders"]
    shout = "ensembed_shout:open_shout"

makes `shout:…` a name like any other; `open_shout(request: Request) -> Encoder` is all it has to write.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import TypeAlias

from ensembed.encoders.base import Encoder, naming_failures
from ensembed.encoders.names import Request
from ensembed.errors import EncoderError, InputError, UnknownEncoderError

GROUP = "ensembed.encoders"
Opener: TypeAlias = Callable[[Request], Encoder]

# Scheme: (what a user sees in lists, the opener). Openers are named, not imported: each has heavy libraries of its own.
BUILT_IN = {
    "st": ("NAME-OR-PATH of a sentence-transformers model", "st.encoder:open_st"),
    "onnx": ("folder with model.onnx and tokenizer.json", "onnx.encoder:open_onnx"),
    "model2vec": ("NAME-OR-PATH of a model2vec model", "static:open_model2vec"),
    "static": ("safetensors file of token vectors beside its tokenizer.json", "static:open_static"),
    "words": ("file of word vectors: GloVe, word2vec, fastText, wink", "words.words_encoder:open_words"),
    "paranmt": ("pickle of Wieting and Gimpel's word and trigram vectors", "paranmt.paranmt_encoder:open_paranmt"),
    "tfhub": ("URL, folder or .tar.gz of a TensorFlow SavedModel", "tfhub.tfhub_encoder:open_tfhub"),
    "openai": ("URL#MODEL of an OpenAI-compatible server", "openai.openai_encoder:open_openai"),
    "use-lite": ("folder with the TF.js Universal Sentence Encoder lite", "use_lite:open_use_lite"),
    "demo": ("nothing: vectors of hashed words, for trying things out", "demo:open_demo"),
}


def open_request(request: Request) -> Encoder:
    """The encoder that the request names.

    Raises:
        UnknownEncoderError: no built-in scheme and no installed package opens it.
        EncoderError: a package's opener failed, or returned something else than an encoder.
    """
    if request.scheme in BUILT_IN:
        target = f"ensembed.encoders.{BUILT_IN[request.scheme][1]}"
        opener: Opener = EntryPoint(request.scheme, target, GROUP).load()
        return opener(request)
    return _open_plugin(request)


def plugins() -> dict[str, list[EntryPoint]]:
    """The schemes that installed packages add, each with all that claim it."""
    found: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=GROUP):
        if point.name not in BUILT_IN:  # a package cannot take over a scheme of ours
            found.setdefault(point.name, []).append(point)
    return found


def package_of(point: EntryPoint) -> str:
    """The package, with its version, that an entry point comes from."""
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.value


def _open_plugin(request: Request) -> Encoder:
    found = plugins()
    if request.scheme not in found:
        schemes = [*BUILT_IN, *found]
        close = difflib.get_close_matches(request.scheme, schemes)
        hint = f" (did you mean {' or '.join(map(repr, close))}?)" if close else ""
        raise UnknownEncoderError(
            f"{request.name!r}: there is no kind of encoder {request.scheme!r}{hint}; there are: {', '.join(schemes)}"
        )
    points = found[request.scheme]
    if len(points) > 1:
        raise InputError(
            f"{request.name!r}: the packages {' and '.join(map(package_of, points))} both open {request.scheme!r}; "
            "uninstall one"
        )
    with naming_failures(f"{request.name} (package {package_of(points[0])})"):
        encoder = points[0].load()(request)
    if not isinstance(encoder, Encoder):
        raise EncoderError(
            f"encoder {request.name!r}: package {package_of(points[0])} returned a {type(encoder).__name__}, "
            "not an ensembed.encoders.Encoder"
        )
    return encoder
