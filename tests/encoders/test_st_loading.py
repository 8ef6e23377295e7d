"""Loading of sentence-transformers models: nothing in place of what a model asks for, also from several threads."""

from __future__ import annotations

import json
import logging
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from make_st import HIDDEN, write_json, write_modules, write_st
from safetensors.numpy import load_file, save_file

from ensembed.encoders import open_encoder
from ensembed.encoders.st_encoder import SentenceTransformerEncoder, using_threads
from ensembed.encoders.st_loading import quiet
from ensembed.errors import EncoderError
from ensembed.support.file_limits import JSON_BYTES

BRANCHES = ("transformers", "sentence_transformers")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_st(tmp_path / "model")


def add_dense(folder: Path, **settings: Any) -> None:  # noqa: ANN401 - whatever JSON holds
    """Put a dense layer behind the pooling."""
    config = {"in_features": HIDDEN, "out_features": 8, "bias": False} | settings
    write_json(folder / "2_Dense" / "config.json", config)
    weight = np.random.default_rng(0).standard_normal((8, HIDDEN)).astype(np.float32)
    save_file({"linear.weight": weight}, folder / "2_Dense" / "model.safetensors")
    write_modules(folder, ["", "1_Pooling", "2_Dense"])


def test_settings_that_the_library_would_copy_for_seconds_are_refused(folder: Path) -> None:
    settings = json.loads((folder / "config.json").read_text())
    write_json(folder / "config.json", settings | {"architectures": [[{}] * 30_000]})
    with pytest.raises(EncoderError, match=r"config\.json .*more than 20,000 values"):
        open_encoder(f"st:{folder}")


def test_layers_that_are_larger_than_their_files_are_refused(folder: Path) -> None:
    add_dense(folder, out_features=20_000)
    with pytest.raises(EncoderError, match=r"says in_features=\d+, out_features=20000: the files beside it"):
        open_encoder(f"st:{folder}")


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"intermediate_size": 10**7}, "says intermediate_size=10000000 with vectors of 32 numbers"),
        ({"max_position_embeddings": 10**7}, "says max_position_embeddings=10000000 with vectors of 32 numbers"),
        ({"text_config": {"hidden_size": 10**5}}, "says hidden_size=100000 with vectors of 100000 numbers"),
        ({"num_hidden_layers": 500}, "says num_hidden_layers=500: no transformer is so deep"),
        ({"vision_config": {"depths": [2, 10**9]}}, "says depths=1000000000: no transformer is so deep"),
        ({"num_labels": 10**9}, "says num_labels=1000000000: no transformer is so deep"),
    ],
)
def test_transformers_that_are_larger_than_their_files_are_refused(
    folder: Path, settings: dict[str, object], problem: str
) -> None:
    write_json(folder / "config.json", json.loads((folder / "config.json").read_text()) | settings)
    with pytest.raises(EncoderError, match=rf"config\.json {problem}"):
        open_encoder(f"st:{folder}")


@pytest.mark.parametrize(
    ("file", "settings"),
    [
        ("tokenizer.json", {"model": {"type": "WordPiece", "vocab": "PLACE"}}),
        ("tokenizer.json", {"model": {"type": "BPE", "vocab": {}, "merges": "PLACE"}}),
        ("Tokenizer.JSON", {"model": {"type": "WordPiece", "vocab": "PLACE"}}),
        ("0_Other/tokenizer.json", {"model": {"type": "WordPiece", "vocab": "PLACE"}}),
        ("tokenizer_config.json", {"merges": "PLACE"}),
        ("tokenizer_config.json", {"tokenizer_file": "PLACE"}),
        ("special_tokens_map.json", {"vocab_file": "PLACE"}),
        ("sentence_bert_config.json", {"max_seq_length": 64, "tokenizer_args": {"vocab_file": "PLACE"}}),
        ("sentence_bert_config.json", {"max_seq_length": 64, "model_kwargs": {"gguf_file": "PLACE"}}),
    ],
)
def test_tokenizers_that_name_files_are_refused(folder: Path, file: str, settings: dict[str, object]) -> None:
    os.mkfifo(folder.parent / "pipe")  # reading it has no end
    write_json(folder / file, json.loads(json.dumps(settings).replace("PLACE", str(folder.parent / "pipe"))))
    with pytest.raises(
        EncoderError,
        match=rf"{re.escape(file)} takes (vocab|merges|vocab_file|tokenizer_file|gguf_file) from the file ",
    ):
        open_encoder(f"st:{folder}")


def test_a_tokenizer_may_name_its_file_on_another_machine(folder: Path) -> None:
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    for place in (folder.parent / "absent" / "tokenizer.json", folder / "tokenizer.json"):
        write_json(folder / "tokenizer_config.json", settings | {"tokenizer_file": str(place)})
        open_encoder(f"st:{folder}")


def test_a_special_token_that_is_no_token_is_refused(folder: Path) -> None:
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    write_json(folder / "tokenizer_config.json", settings | {"pad_token": "a" * 1_000_000})
    with pytest.raises(EncoderError, match=r"tokenizer_config\.json .*pad_token has 1,000,000 characters"):
        open_encoder(f"st:{folder}")


def test_tokenizers_of_other_versions_of_the_library_lie_beside_their_settings(folder: Path) -> None:
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    write_json(folder / "tokenizer_config.json", settings | {"fast_tokenizer_files": ["tokenizer.4.0.json"]})
    (folder / "tokenizer.4.0.json").write_bytes((folder / "tokenizer.json").read_bytes())
    open_encoder(f"st:{folder}")
    write_json(folder / "tokenizer_config.json", settings | {"fast_tokenizer_files": ["../tokenizer.4.0.json"]})
    with pytest.raises(EncoderError, match=r"names '../tokenizer.4.0.json', which is no file beside it"):
        open_encoder(f"st:{folder}")


def test_a_tokenizer_with_settings_beyond_the_bounds_is_refused(folder: Path) -> None:
    (folder / "tokenizer_config.json").write_bytes(b'{"vocab": "/dev/zero"}' + b" " * JSON_BYTES)
    with pytest.raises(EncoderError, match=r"tokenizer_config\.json is not JSON \(it has more than 33,554,432 bytes"):
        open_encoder(f"st:{folder}")


# --- files that other systems open under another spelling -------------------------------------------------------------

SPELLINGS = ["router_config.json", "Router_Config.JSON", "ROUTER_CONFIG.json", "router_config.js\u200don"]
SPELLINGS += ["\uff52outer_config.json", "router_config.j\u017fon"]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_code_is_refused_however_the_file_that_names_it_is_spelled(folder: Path, spelling: str) -> None:
    write_json(folder / "3_Router" / spelling, {"types": {"0": "custom.Mine"}})
    with pytest.raises(EncoderError, match=r"names .custom\.Mine., which is no part of sentence-transformers"):
        open_encoder(f"st:{folder}")


def test_an_adapter_is_refused_however_its_file_is_spelled(folder: Path) -> None:
    write_json(folder / "Adapter_Config.JSON", {"base_model_name_or_path": "somewhere/else"})
    with pytest.raises(EncoderError, match="makes the model an adapter of 'somewhere/else'"):
        open_encoder(f"st:{folder}?trust_remote_code=true")


# --- what the library only logs ---------------------------------------------------------------------------------------


def test_an_activation_from_elsewhere_is_refused_and_not_replaced(folder: Path) -> None:
    write_modules(folder, ["", "1_Pooling"])
    pooled = open_encoder(f"st:{folder}").encode(["a dog"])
    add_dense(folder, activation_function="torch.nn.modules.linear.Identity")
    weight = load_file(folder / "2_Dense" / "model.safetensors")["linear.weight"]
    np.testing.assert_allclose(open_encoder(f"st:{folder}").encode(["a dog"]), pooled @ weight.T, atol=1e-4)
    add_dense(folder, activation_function="transformers.activations.GELUActivation")
    with pytest.raises(EncoderError, match=r"2_Dense/config.json names 'transformers.activations.GELUActivation'.*ask"):
        open_encoder(f"st:{folder}")


def test_an_activation_from_elsewhere_is_refused_in_a_layer_that_looks_like_a_router(folder: Path) -> None:
    write_modules(folder, ["", "1_Pooling"])
    add_dense(folder, activation_function="transformers.activations.GELUActivation")
    config = json.loads((folder / "2_Dense" / "config.json").read_text())
    write_json(folder / "2_Dense" / "config.json", config | {"types": {}})
    with pytest.raises(EncoderError, match=r"2_Dense/config.json names 'transformers.activations.GELUActivation'.*ask"):
        open_encoder(f"st:{folder}")


def test_activations_of_the_transformer_itself_are_accepted(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    write_json(folder / "config.json", config | {"activation_function": "gelu"})  # as BART and GPT-2 have it
    open_encoder(f"st:{folder}")


@pytest.mark.parametrize(
    ("message", "hint"),
    [
        ("Activation function path 'x.Y' is not trusted, falling back to the default", "trust_remote_code=true"),
        ("Ignoring unrecognized Dense config key(s) ['gate'] from 'x'", "gate"),
        ("The model config specifies `is_causal=False`, but it may be silently ignored", "is_causal"),
        ("Unknown keys in `processing_kwargs`: {'txt'}", "txt"),
    ],
)
def test_whatever_the_library_says_it_ignores_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, message: str, hint: str
) -> None:
    """Also where the files themselves did not tell."""
    import sentence_transformers

    load = sentence_transformers.SentenceTransformer

    def logging_load(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - whatever is passed on
        logging.getLogger("sentence_transformers.somewhere").warning(message)
        return load(*args, **kwargs)

    monkeypatch.setattr(sentence_transformers, "SentenceTransformer", logging_load)
    with pytest.raises(EncoderError, match=f"(?s)would not be those of the model: .*{hint}"):
        open_encoder(f"st:{folder}")


def test_settings_that_the_library_does_not_know_are_refused(folder: Path) -> None:
    add_dense(folder, activation_function="torch.nn.modules.linear.Identity", gate=True)
    with pytest.raises(EncoderError, match="'gate'"):
        open_encoder(f"st:{folder}")


@contextmanager
def silenced(how: str) -> Iterator[None]:
    """What programs do to the log lines of their libraries."""
    loggers = [
        logging.getLogger(name) for name in list(logging.root.manager.loggerDict) if name.partition(".")[0] in BRANCHES
    ]
    before = [(logger, logger.disabled, logger.level) for logger in loggers]
    for logger in loggers:
        if how == "dictConfig":
            logger.disabled = True
        elif how == "setLevel":
            logger.setLevel(logging.CRITICAL)
    if how == "disable":
        logging.disable(logging.CRITICAL)
    try:
        yield
        if how != "disable":
            assert [(logger.disabled, logger.level) for logger in loggers] == [
                (how == "dictConfig", logging.CRITICAL if how == "setLevel" else level) for _, _, level in before
            ]
        assert logging.root.manager.disable == (logging.CRITICAL if how == "disable" else logging.NOTSET)
    finally:
        logging.disable(logging.NOTSET)
        for logger, disabled, level in before:
            logger.disabled = disabled
            logger.setLevel(level)


@pytest.mark.parametrize("how", ["disable", "dictConfig", "setLevel"])
def test_missing_tensors_are_noticed_by_programs_that_log_nothing(folder: Path, how: str) -> None:
    open_encoder(f"st:{folder}")  # makes the loggers
    weights = load_file(folder / "model.safetensors")
    del weights["encoder.layer.1.output.dense.weight"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with silenced(how), pytest.raises(EncoderError, match="lack 1 tensors"):
        open_encoder(f"st:{folder}")


# --- several threads --------------------------------------------------------------------------------------------------


def run_both(first: Callable[[], None], second: Callable[[], None]) -> None:
    threads = [threading.Thread(target=target, daemon=True) for target in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def test_what_two_models_log_is_not_mixed() -> None:
    import transformers  # noqa: F401 - so that its own handler is there

    loggers = [logging.getLogger(name) for name in BRANCHES]
    before = [(list(logger.handlers), logger.level, logger.propagate) for logger in loggers]
    entered, late, done = threading.Event(), threading.Event(), threading.Event()
    heard: dict[str, list[str]] = {}

    def first() -> None:
        with quiet() as messages:
            entered.set()
            late.wait(0.3)  # time for the other to come in, if nothing kept it out
            logging.getLogger("transformers.modeling_utils").warning("of the first")
            heard["first"] = list(messages)
        done.set()

    def second() -> None:
        entered.wait()
        with quiet() as messages:
            late.set()
            done.wait(0.3)
            logging.getLogger("transformers.modeling_utils").warning("of the second")
            heard["second"] = list(messages)

    run_both(first, second)
    assert heard == {"first": ["of the first"], "second": ["of the second"]}
    assert [(list(logger.handlers), logger.level, logger.propagate) for logger in loggers] == before


def test_two_models_can_be_opened_at_the_same_time(tmp_path: Path) -> None:
    whole, torn = write_st(tmp_path / "whole"), write_st(tmp_path / "torn")
    weights = load_file(torn / "model.safetensors")
    del weights["encoder.layer.0.output.dense.weight"]
    save_file(weights, torn / "model.safetensors", {"format": "pt"})
    outcomes: dict[str, object] = {}

    def opening(folder: Path) -> Callable[[], None]:
        def target() -> None:
            try:
                outcomes[folder.name] = open_encoder(f"st:{folder}").spec.dim
            except EncoderError as error:
                outcomes[folder.name] = "lack 1 tensors" in str(error)

        return target

    run_both(opening(whole), opening(torn))
    assert outcomes == {"whole": HIDDEN, "torn": True}


def test_the_number_of_threads_is_put_back_after_runs_that_overlap() -> None:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        one, two = using_threads(torch, 1), using_threads(torch, 2)
        one.__enter__()
        assert torch.get_num_threads() == 1
        two.__enter__()
        one.__exit__(None, None, None)
        two.__exit__(None, None, None)
        assert torch.get_num_threads() == 3
        with pytest.raises(KeyError), using_threads(torch, 1):
            raise KeyError
        assert torch.get_num_threads() == 3

        # Each in a thread of its own, and the first to begin is the first to end.
        inside, left, seen = threading.Event(), threading.Event(), {}

        def first() -> None:
            with using_threads(torch, 1):
                inside.wait()
            seen["first"] = torch.get_num_threads()
            left.set()

        def second() -> None:
            with using_threads(torch, 2):
                inside.set()
                left.wait()
            seen["second"] = torch.get_num_threads()

        run_both(first, second)
        assert seen == {"first": 3, "second": 3}
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


# --- keys of rounded models -------------------------------------------------------------------------------------------


def key(folder: Path, options: str) -> str:
    return open_encoder(f"st:{folder}?{options}").spec.key


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_batches_and_devices_change_the_key_of_rounded_models_only(folder: Path, precision: str) -> None:
    spec = open_encoder(f"st:{folder}?precision={precision}").spec
    assert dict(spec.extra) == {"precision": precision, "batch_size": "1", "device": "cpu"}
    assert spec.key == key(folder, f"precision={precision}&batch_size=1&device=cpu")
    assert spec.key != key(folder, f"precision={precision}&batch_size=8")
    assert key(folder, "batch_size=1") == key(folder, "batch_size=8")


def test_another_kind_of_device_is_another_rounded_encoder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be no GPU here: the model only says that it is on one."""
    import sentence_transformers

    class Device:
        type = "cuda"

    def opened(precision: str) -> str:
        vectors = np.zeros((1, HIDDEN))
        monkeypatch.setattr(SentenceTransformerEncoder, "embed", lambda _self, _sentences: vectors)
        encoder = SentenceTransformerEncoder(folder, name="x", revision="y", precision=precision, batch_size=4)
        return encoder.spec.key

    here = [opened(precision) for precision in ("float32", "float16")]
    monkeypatch.setattr(sentence_transformers.SentenceTransformer, "device", Device())
    there = [opened(precision) for precision in ("float32", "float16")]
    assert here[0] == there[0]
    assert here[1] != there[1]
