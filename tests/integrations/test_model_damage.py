"""The JSON of models that were saved for other libraries, with every key damaged: an error of ours, or a model."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from damage import damages

from ensembed.errors import EnsembedError, ModelError
from ensembed.integrations.onnx import OnnxModel, export_model
from ensembed.integrations.sentence_transformers import load, to_sentence_transformer

sys.path.insert(0, str(Path(__file__).parents[1] / "encoders"))  # small transformers are made there

from make_onnx import write_onnx


@pytest.mark.parametrize("name", ["modules.json", "config_sentence_transformers.json"])
def test_damaged_folder_of_sentence_transformers_is_a_model_error(name: str, tmp_path: Path) -> None:
    from sentence_transformers.base.modules import Dense

    model = to_sentence_transformer("demo?dim=8", prompts={"query": "to find: "}, truncate_dim=3)
    model.append(Dense(8, 4))
    model.save(str(tmp_path))
    path = tmp_path / name
    whole = json.loads(path.read_text())
    for _, data in damages(whole):
        path.write_text(json.dumps(data))
        try:
            load(tmp_path).encode_query(["a dog"])
        except ModelError:
            continue
    path.write_text(json.dumps(whole))
    assert load(tmp_path).encode(["a dog"]).shape == (1, 3)
    (tmp_path / "1_Dense" / "config.json").write_text("[]")
    with pytest.raises(ModelError, match="it holds a list"):
        load(tmp_path)


def test_damaged_onnx_export_is_a_model_error(tmp_path: Path) -> None:
    export_model(f"onnx:{write_onnx(tmp_path / 'encoder')}", tmp_path / "out")
    path = tmp_path / "out" / "config.json"
    whole = json.loads(path.read_text())
    path.write_text(json.dumps(whole | {"dim": 7}))
    with pytest.raises(ModelError, match=r"does not fit its hash; export again"):
        OnnxModel(tmp_path / "out")
    del whole["seal"]  # as in an export of version 0.1: now the content itself is checked
    for _, data in damages(whole):
        path.write_text(json.dumps(data))
        try:
            OnnxModel(tmp_path / "out", threads=1).encode(["a dog", "the cat sleeps"])
        except EnsembedError:
            continue
    for wrong in (None, True, -1, 7, "8", 10**30):
        path.write_text(json.dumps(whole | {"dim": wrong}))
        with pytest.raises(ModelError, match=r"its dim is .*export again"):
            OnnxModel(tmp_path / "out")
    path.write_text(json.dumps(whole))
    assert OnnxModel(tmp_path / "out").encode(["a dog"]).shape == (1, 8)
