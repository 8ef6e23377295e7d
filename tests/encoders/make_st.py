"""A small random BERT as a sentence-transformers folder, written file by file, not by the library that reads it."""

from __future__ import annotations

import json
import string
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

HIDDEN, LAYERS, POSITIONS, MAX_LENGTH = 32, 2, 128, 64
PROMPTS = {"query": "query: ", "document": "passage: "}
WORDS = """
a about after again all an analysts and are as at be but by cats cloud day dog dogs dreams fell for from girl guitar has
have he her his house in into is it its leather man market may more music not of on one or passage people playing prices
query rain report road run said sees sharply she sleeps snow sofa stage stock sun than that the their they third this
three through time to tuesday two was water were while who will with woman word world year
"""


def make_st(folder: Path) -> str:
    """Write the model, with prompts for queries and documents, and return its name."""
    write_st(folder / "model")
    return f"st:{folder / 'model'}"


def write_st(folder: Path, *, seed: int = 0, normalize: bool = True) -> Path:
    """Write the model into the folder."""
    folder.mkdir(parents=True)
    size = write_tokenizer(folder)
    weights = bert_weights(size, np.random.default_rng(seed))
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    write_json(
        folder / "config.json",
        {
            "architectures": ["BertModel"],
            "model_type": "bert",
            "vocab_size": size,
            "hidden_size": HIDDEN,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": 4,
            "intermediate_size": 2 * HIDDEN,
            "max_position_embeddings": POSITIONS,
            "hidden_act": "gelu",
        },
    )
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": MAX_LENGTH, "do_lower_case": False})
    write_json(folder / "config_sentence_transformers.json", {"prompts": PROMPTS, "default_prompt_name": None})
    pooling = {"word_embedding_dimension": HIDDEN, "pooling_mode_mean_tokens": True}
    write_json(folder / "1_Pooling" / "config.json", pooling)
    write_modules(folder, ["", "1_Pooling", "2_Normalize"] if normalize else ["", "1_Pooling"])
    return folder


def write_modules(folder: Path, paths: list[str]) -> None:
    """Write `modules.json`: the first module is the transformer, the others are named after their folder."""
    names = ["Transformer", *(path.partition("_")[2] for path in paths[1:])]
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{name}"}
        for i, (path, name) in enumerate(zip(paths, names, strict=True))
    ]
    write_json(folder / "modules.json", modules)


def write_tokenizer(folder: Path) -> int:
    """Write a WordPiece tokenizer over a few words and all letters; returns the size of its vocabulary."""
    letters = string.ascii_lowercase + string.digits
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces = [*special, *letters, *(f"##{letter}" for letter in letters), *string.punctuation, *WORDS.split()]
    vocabulary = {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=100))  # noqa: S106 - a token of no secret
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.add_special_tokens(special)
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    about = {"tokenizer_class": "BertTokenizer", "do_lower_case": True, "mask_token": "[MASK]", **names}
    write_json(folder / "tokenizer_config.json", about)
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    return len(vocabulary)


def bert_weights(vocabulary: int, random: np.random.Generator) -> dict[str, Any]:
    """The tensors of a BERT by their names, normally distributed."""
    weights: dict[str, Any] = {}

    def linear(name: str, outputs: int, inputs: int) -> None:
        weights[f"{name}.weight"] = random.normal(0, 0.2, (outputs, inputs)).astype(np.float32)
        weights[f"{name}.bias"] = random.normal(0, 0.2, outputs).astype(np.float32)

    def norm(name: str) -> None:
        weights[f"{name}.weight"], weights[f"{name}.bias"] = np.ones(HIDDEN, np.float32), np.zeros(HIDDEN, np.float32)

    for name, rows in {"word": vocabulary, "position": POSITIONS, "token_type": 2}.items():
        table = random.normal(0, 1, (rows, HIDDEN)).astype(np.float32)
        weights[f"embeddings.{name}_embeddings.weight"] = table
    norm("embeddings.LayerNorm")
    for i in range(LAYERS):
        layer = f"encoder.layer.{i}"
        for part in ("query", "key", "value"):
            linear(f"{layer}.attention.self.{part}", HIDDEN, HIDDEN)
        linear(f"{layer}.attention.output.dense", HIDDEN, HIDDEN)
        linear(f"{layer}.intermediate.dense", 2 * HIDDEN, HIDDEN)
        linear(f"{layer}.output.dense", HIDDEN, 2 * HIDDEN)
        norm(f"{layer}.attention.output.LayerNorm")
        norm(f"{layer}.output.LayerNorm")
    linear("pooler.dense", HIDDEN, HIDDEN)
    return weights


def write_json(path: Path, content: object) -> None:
    """Write a JSON file, and its folder where there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2))


def write_code(folder: Path, marker: Path) -> None:
    """Put code into a model's folder that leaves a file behind when it runs."""
    (folder / "custom.py").write_text(
        f"from pathlib import Path\nPath({str(marker)!r}).touch()\n"
        "from transformers import BertConfig, BertModel\n"
        "from sentence_transformers.models import Normalize as Mine\n"
        "class MyConfig(BertConfig):\n    model_type = 'mine'\n"
        "class MyModel(BertModel):\n    config_class = MyConfig\n"
    )


def name_a_module(folder: Path) -> None:
    """Let `modules.json` ask for the code."""
    modules = json.loads((folder / "modules.json").read_text())
    modules[2]["type"] = "custom.Mine"
    write_json(folder / "modules.json", modules)


def name_a_route(folder: Path) -> None:
    """Let a router ask for the code."""
    write_json(folder / "3_Router" / "router_config.json", {"types": {"0": "custom.Mine"}})


def name_a_model(folder: Path, module: str = "custom") -> None:
    """Let the transformer ask for the code."""
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "mine", "auto_map": {f"Auto{kind}": f"{module}.My{kind}" for kind in ("Config", "Model")}}
    write_json(folder / "config.json", config)


def name_a_route_outside(folder: Path) -> None:
    """Let `modules.json` name a router beside the model's folder, whose configuration asks for the code."""
    outside = folder.parent / "outside"
    write_json(outside / "router_config.json", _ROUTER)
    modules = json.loads((folder / "modules.json").read_text())
    write_json(folder / "modules.json", [*modules, _module("../outside")])


def name_a_route_absolutely(folder: Path) -> None:
    """Do the same by the whole path."""
    name_a_route_outside(folder)
    modules = json.loads((folder / "modules.json").read_text())
    write_json(folder / "modules.json", [*modules[:-1], _module(str(folder.parent / "outside"))])


def link_to_a_route(folder: Path) -> None:
    """Do the same by a link."""
    name_a_route_outside(folder)
    (folder / "3_Router").symlink_to(folder.parent / "outside", target_is_directory=True)
    modules = json.loads((folder / "modules.json").read_text())
    write_json(folder / "modules.json", [*modules[:-1], _module("3_Router")])


def name_a_route_of_a_route(folder: Path) -> None:
    """Let a router within the folder name one outside."""
    name_a_route_outside(folder)
    router = _ROUTER | {"types": {"../../outside": "sentence_transformers.models.Router"}}
    write_json(folder / "3_Router" / "router_config.json", router)
    modules = json.loads((folder / "modules.json").read_text())
    write_json(folder / "modules.json", [*modules[:-1], _module("3_Router")])


def name_the_activation(folder: Path) -> None:
    """Let a dense layer without its size ask for a function of torch, which older versions call."""
    config = {"activation_function": "torch.hub.HASH_REGEX.Something"}
    write_json(folder / "3_Dense" / "config.json", config)
    modules = json.loads((folder / "modules.json").read_text())
    dense = _module("3_Dense") | {"type": "sentence_transformers.models.Dense"}
    write_json(folder / "modules.json", [*modules, dense])


_ROUTER = {"types": {"0": "custom.Mine"}, "structure": {"query": ["0"]}, "parameters": {}}


def _module(path: str) -> dict[str, Any]:
    return {"idx": 3, "name": "3", "path": path, "type": "sentence_transformers.models.Router"}
