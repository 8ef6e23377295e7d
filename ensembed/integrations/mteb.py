"""An encoder for MTEB 2, and MTEB's STS tasks on data of this machine.

result = mteb.evaluate(MtebModel(ensembed.load("my-model")), tasks)
"""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np

from ensembed.encoders import Encoder
from ensembed.encoders.base import FloatArray
from ensembed.errors import DatasetError, InputError
from ensembed.models.ensemble import MetaEncoder
from ensembed.models.opening import ModelLike, open_model
from ensembed.sts import Dataset
from ensembed.support.extras import import_extra
from ensembed.support.progress import Progress, silent

__all__ = ["MtebModel", "local_sts"]

_WHAT = "the integration with MTEB"

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what the libraries have to say when they are imported
    mteb = import_extra("mteb", "mteb", _WHAT)
    _abs_encoder = import_extra("mteb.models.abs_encoder", "mteb", _WHAT)

Task: TypeAlias = Any
"""A task of the library, whose types are not read."""

# What MTEB calls the libraries that compute, by the kind of encoder; numpy combines them.
_FRAMEWORKS = {
    "onnx": ("ONNX",),
    "st": ("Sentence Transformers", "PyTorch"),
    "tfhub": ("TensorFlow",),
    "openai": ("API",),
}


class MtebModel(_abs_encoder.AbsEncoder):  # type: ignore[misc, name-defined] # the library's types are not read
    """What `mteb.evaluate` takes: an `EncoderProtocol` that gives the model's vectors, compared by their cosine.

    Results are kept by MTEB under the name and the revision, which is the key of all that changes the numbers: another
    fit is another revision.

    Args:
        model: a meta-encoder or any other encoder, the folder of a saved model, or a name. What it is told by
            name (`minilm?prefix=query: `) holds for all texts; MTEB's own prompts are not used.
        name: what to call it in results, as `organization/name`; by default `ensembed/` and the model's name.
        trust: also open what runs code that comes with it, or sends sentences away.
        progress: told of encoded rows.

    Example:
        >>> MtebModel("demo?dim=8&seed=1").mteb_model_meta.name
        'ensembed/demo-dim-8-seed-1'
    """

    def __init__(
        self, model: ModelLike, name: str | None = None, *, trust: bool = False, progress: Progress = silent
    ) -> None:
        self.model = open_model(model, trust=trust, from_file=True)
        spec = self.model.spec
        name = name or "ensembed/" + re.sub(r"[^\w.+]+", "-", spec.name).strip("-")
        if not re.fullmatch(r"[^/\s]+/[^/\s]+", name):
            raise InputError(f"MTEB calls a model organization/name, unlike {name!r}")
        self._progress = progress
        members = _members(self.model)
        limits = [member.spec.max_length for member in members if member.spec.max_length is not None]
        frameworks = [framework for member in members for framework in _FRAMEWORKS.get(member.spec.kind, ())]
        self.mteb_model_meta = mteb.models.ModelMeta.create_empty(
            {
                "name": name,
                "revision": spec.key,
                "embed_dim": spec.dim,
                "max_tokens": min(limits, default=None),
                "framework": list(dict.fromkeys([*frameworks, "NumPy"])),
                "similarity_fn_name": _abs_encoder.ScoringFunction.COSINE,
                "use_instructions": False,
            }
        )

    def encode(
        self,
        inputs: Iterable[Mapping[str, Any]],
        *,
        task_metadata: Any,  # noqa: ANN401 - the library's
        hf_split: str,  # noqa: ARG002 - of the protocol
        hf_subset: str,  # noqa: ARG002 - of the protocol
        prompt_type: Any = None,  # noqa: ANN401, ARG002 - of the protocol
        **options: Any,  # noqa: ANN401 - the library's
    ) -> FloatArray:
        """The vectors of all texts; MTEB's batch size does not matter, each distinct text is encoded once.

        Raises:
            InputError: the task is about something else than texts, or asks for rounded vectors.
        """
        precision = options.get("precision")
        if precision not in (None, "float32"):
            # MTEB writes it into the results: it must not be ignored.
            raise InputError(
                f"precision={precision!r} is not made here: give mteb.evaluate what to_sentence_transformer makes"
            )
        texts: list[str] = []
        for batch in inputs:
            if "text" not in batch:
                raise InputError(
                    f"task {task_metadata.name!r} has batches of {sorted(batch)}, and this encoder reads texts alone"
                )
            texts += batch["text"]
        return self.model.encode(texts, progress=self._progress)


def local_sts(task: str, data: Dataset | Mapping[str, Dataset]) -> Task:
    """One of MTEB's STS tasks with pairs of this machine, so that `mteb.evaluate` asks no hub.

    All parts of a data set become one list of pairs, as MTEB has them: that is the protocol `all` of `ensembed.sts`.
    The task's name ends with a hash of these pairs, since MTEB keeps results by name: those of other pairs, or of the
    hub's, are not taken for them.

    Args:
        task: MTEB's name of the task, for instance `STSBenchmark` or `STS14`.
        data: the pairs, for instance `find_sts("stsb-test")`, of the split `test`, or by the name of the split.

    Raises:
        InputError: MTEB has no STS task of that name, or it has no such split.
    """
    splits = {"test": data} if isinstance(data, Dataset) else dict(data)
    if not splits:
        raise DatasetError(f"{task}: there is no split; give pairs, for instance find_sts('stsb-test')")
    try:
        made = mteb.get_task(task)
    except KeyError as error:
        raise InputError(f"MTEB has no task {task!r}: {error}") from error
    if made.metadata.type != "STS" or made.metadata.is_multilingual:
        raise InputError(f"{task!r} is no STS task in one language: MTEB calls it {made.metadata.type}")
    if unknown := splits.keys() - set(made.metadata.eval_splits):
        raise InputError(f"{task!r} has the splits {made.metadata.eval_splits}, and not {sorted(unknown)}")
    made = mteb.get_task(task, eval_splits=list(splits))
    datasets = import_extra("datasets", "mteb", _WHAT)
    made.dataset = {"default": {split: datasets.Dataset.from_dict(_columns(pairs)) for split, pairs in splits.items()}}
    made.data_loaded = True
    revision = "+".join(pairs.fingerprint for pairs in splits.values())
    # MTEB keeps results by the task's name, and does not look at the data's revision where all splits are there.
    name = f"{task}-local-{hashlib.sha256(revision.encode()).hexdigest()[:12]}"
    source = {"path": "local", "revision": revision}
    made.metadata = made.metadata.model_copy(update={"name": name, "dataset": dict(made.metadata.dataset) | source})
    return made


def _members(model: Encoder) -> list[Encoder]:
    if not isinstance(model, MetaEncoder):
        return [model]
    return [inner for member in model.ensemble.encoders for inner in _members(member)]


def _columns(data: Dataset) -> dict[str, list[Any]]:
    return {
        "sentence1": [text for part in data.parts for text in part.sentences1],
        "sentence2": [text for part in data.parts for text in part.sentences2],
        "score": np.concatenate([part.scores for part in data.parts]).tolist(),
    }
