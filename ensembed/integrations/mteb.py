"""MTEB 2: a model for `mteb.evaluate(MtebModel(ensembed.load("my-model")), tasks)`, and STS tasks on local data."""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np

from ensembed.encoders.base import Encoder, FloatArray
from ensembed.encoders.names_and_consent import Trust
from ensembed.errors import DatasetError, InputError
from ensembed.integrations.model_source import untrusted
from ensembed.models.ensemble import MetaEncoder
from ensembed.models.opening import ModelLike, open_model
from ensembed.sts import Dataset
from ensembed.support.extras import import_extra
from ensembed.support.progress import Progress, silent

__all__ = ["MtebModel", "local_sts"]

_WHAT = "the integration with MTEB"

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the libraries' own, when they are imported
    mteb = import_extra("mteb", "mteb", _WHAT)
    _abs_encoder = import_extra("mteb.models.abs_encoder", "mteb", _WHAT)

Task: TypeAlias = Any
"""A task of the library, whose types are not read."""

# MTEB's names of the libraries that compute, by the kind of encoder; numpy combines the vectors.
_FRAMEWORKS = {"onnx": ["ONNX"], "st": ["Sentence Transformers", "PyTorch"], "tfhub": ["TensorFlow"], "openai": ["API"]}


class MtebModel(_abs_encoder.AbsEncoder):  # type: ignore[misc, name-defined] # the library's types are not read
    """An `EncoderProtocol` for `mteb.evaluate`: the model's vectors, compared by cosine; their key is the revision.

    Args:
        model: an encoder, the folder of a saved model, or a name, whose options replace MTEB's own prompts.
        name: the name in results, as `organization/name`; by default `ensembed/` and the model's name.
        trust: also open encoders that run code or use a network; see `ensembed.load`.
        progress: reports encoded rows.

    Example:
        >>> MtebModel("demo?dim=8&seed=1").mteb_model_meta.name
        'ensembed/demo-dim-8-seed-1'
    """

    def __init__(
        self, model: ModelLike, name: str | None = None, *, trust: Trust = False, progress: Progress = silent
    ) -> None:
        self.model = open_model(untrusted(model), trust=trust)
        spec = self.model.spec
        name = name or "ensembed/" + re.sub(r"[^\w.+]+", "-", spec.name).strip("-")
        if not re.fullmatch(r"[^/\s]+/[^/\s]+", name):
            raise InputError(f"MTEB calls a model organization/name, unlike {name!r}")
        self._progress = progress
        members = [member.spec for member in _members(self.model)]
        frameworks = [framework for member in members for framework in _FRAMEWORKS.get(member.kind, ())]
        facts = {"name": name, "revision": spec.key, "embed_dim": spec.dim, "use_instructions": False}
        facts["max_tokens"] = min((m.max_length for m in members if m.max_length is not None), default=None)
        facts["framework"] = list(dict.fromkeys([*frameworks, "NumPy"]))
        facts["similarity_fn_name"] = _abs_encoder.ScoringFunction.COSINE
        self.mteb_model_meta = mteb.models.ModelMeta.create_empty(facts)

    def encode(self, inputs: Iterable[Mapping[str, Any]], *, task_metadata: Any, **options: Any) -> FloatArray:  # noqa: ANN401 - the library's
        """Return the vectors of all texts, each distinct text encoded once; other inputs are an InputError."""
        precision = options.get("precision")
        if precision not in (None, "float32"):  # MTEB writes it into the results: it must not be ignored
            raise InputError(f"precision={precision!r} is not made here: evaluate what to_sentence_transformer makes")
        texts: list[str] = []
        for batch in inputs:
            if "text" not in batch:
                problem = f"task {task_metadata.name!r} has batches of {sorted(batch)}"
                raise InputError(f"{problem}; this encoder reads texts")
            texts += batch["text"]
        encoders = {"query": self.model.query_encoder, "document": self.model.document_encoder}
        role = getattr(options.get("prompt_type"), "value", options.get("prompt_type"))
        return encoders.get(role or "", self.model).encode(texts, progress=self._progress)


def local_sts(task: str, data: Dataset | Mapping[str, Dataset]) -> Task:
    """Return an STS task of MTEB with pairs from this machine, so that no hub is needed; its name has a hash of them.

    Args:
        task: MTEB's name of the task, for instance `STSBenchmark` or `STS14`; an unknown one is an InputError.
        data: the pairs of the split `test`, such as `find_sts("stsb-test")`, or by split; all parts become one list.
    """
    splits = {"test": data} if isinstance(data, Dataset) else dict(data)
    if not splits:
        raise DatasetError(f"{task}: there is no split; give pairs, for instance find_sts('stsb-test')")
    try:
        local = mteb.get_task(task)
    except KeyError as error:
        raise InputError(f"MTEB has no task {task!r}: {error}") from error
    if local.metadata.type != "STS" or local.metadata.is_multilingual:
        raise InputError(f"{task!r} is no STS task in one language: MTEB calls it {local.metadata.type}")
    if unknown := splits.keys() - set(local.metadata.eval_splits):
        raise InputError(f"{task!r} has the splits {local.metadata.eval_splits}, and not {sorted(unknown)}")
    local = mteb.get_task(task, eval_splits=list(splits))
    datasets = import_extra("datasets", "mteb", _WHAT)
    local.dataset = {"default": {split: datasets.Dataset.from_dict(_columns(pairs)) for split, pairs in splits.items()}}
    local.data_loaded = True
    revision = "+".join(pairs.fingerprint for pairs in splits.values())
    name = f"{task}-local-{hashlib.sha256(revision.encode()).hexdigest()[:12]}"
    source = {"path": "local", "revision": revision}
    local.metadata = local.metadata.model_copy(update={"name": name, "dataset": dict(local.metadata.dataset) | source})
    return local


def _members(model: Encoder) -> list[Encoder]:
    """Return the encoders that are no meta-encoders."""
    if not isinstance(model, MetaEncoder):
        return [model]
    return [inner for member in model.ensemble.encoders for inner in _members(member)]


def _columns(data: Dataset) -> dict[str, list[Any]]:
    return {
        "sentence1": [text for part in data.parts for text in part.sentences1],
        "sentence2": [text for part in data.parts for text in part.sentences2],
        "score": np.concatenate([part.scores for part in data.parts]).tolist(),
    }
