"""An ensemble's training is kept in the view store while it runs, and goes on after an interruption."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock

from ensembed import Ensemble, ListCorpus, ViewStore
from ensembed.errors import StoreBusyError
from ensembed.methods import SVD, Autoencoder
from ensembed.support.progress import Progress

WORDS = ["dog", "cat", "fox", "man", "red", "old", "blue", "runs", "eats"]
SENTENCES = [f"{a} {b} {c}" for a in WORDS for b in WORDS[:4] for c in WORDS[4:]]
MEMBERS = ["demo?dim=8&seed=1", "demo?dim=6&seed=2"]
METHOD = Autoencoder(dim=4, loss="mse", epochs=6, batch_size=32, device="cpu")


def reporter(epochs: list[int], stop: int | None = None) -> Progress:
    """Write down the epochs, and stop at one."""

    def report(label: str, done: int, _total: int | None, /) -> None:
        if label.startswith("train · "):
            epochs.append(done)
            if done == stop:
                raise KeyboardInterrupt

    return report


def kept(store: Path) -> list[str]:
    return sorted(path.name for path in (store / "training").glob("*/*"))


def test_an_interrupted_training_goes_on_to_the_same_model(tmp_path: Path) -> None:
    whole = Ensemble(MEMBERS).fit(SENTENCES, METHOD, store=ViewStore(tmp_path / "whole")).encode(WORDS)
    store = ViewStore(tmp_path / "store")
    epochs: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        Ensemble(MEMBERS).fit(SENTENCES, METHOD, store=store, progress=reporter(epochs, stop=4))
    assert kept(store.root) == ["training.safetensors"]
    again: list[int] = []
    model = Ensemble(MEMBERS).fit(SENTENCES, METHOD, store=store, progress=reporter(again))
    assert again[0] in (4, 5)
    assert again[-1] == 6
    np.testing.assert_array_equal(model.encode(WORDS), whole)
    assert list((store.root / "training").iterdir()) == []


@pytest.mark.parametrize(
    ("members", "sentences", "method"),
    [
        (MEMBERS[::-1], SENTENCES, METHOD),
        (MEMBERS, SENTENCES[1:], METHOD),
        (MEMBERS, SENTENCES, Autoencoder(dim=4, loss="mse", epochs=6, batch_size=16, device="cpu")),
    ],
    ids=["members", "corpus", "method"],
)
def test_another_training_begins_at_the_beginning(
    tmp_path: Path, members: list[str], sentences: list[str], method: Autoencoder
) -> None:
    store = ViewStore(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        Ensemble(MEMBERS).fit(SENTENCES, METHOD, store=store, progress=reporter([], stop=4))
    epochs: list[int] = []
    Ensemble(members).fit(sentences, method, store=store, progress=reporter(epochs))
    assert epochs == [1, 2, 3, 4, 5, 6]
    assert kept(store.root) == ["training.safetensors"]  # the first one can still go on


def test_two_processes_do_not_share_a_training(tmp_path: Path) -> None:
    store = ViewStore(tmp_path)
    ensemble = Ensemble(MEMBERS)
    key = ensemble._training_key(ListCorpus(SENTENCES), METHOD)
    (tmp_path / "locks").mkdir()
    with FileLock(tmp_path / "locks" / f"training-{key}.lock"):
        with pytest.raises(StoreBusyError, match=r"another process is training .*--wait"):
            ensemble.fit(SENTENCES, METHOD, store=store)
        ensemble.fit(SENTENCES, SVD(3), store=store)  # other methods are not held up
    ensemble.fit(SENTENCES, METHOD, store=store)


@pytest.mark.parametrize("method", [SVD(3), Autoencoder(dim=3, hidden_layers=0, loss="mse")], ids=["svd", "solved"])
def test_methods_without_training_keep_no_checkpoint(tmp_path: Path, method: SVD | Autoencoder) -> None:
    Ensemble(MEMBERS).fit(SENTENCES, method, store=ViewStore(tmp_path))
    assert not (tmp_path / "training").exists()


# The command line, which keeps its training after every epoch and stops for good in the fourth.
STOPPING = """
import sys, time
from ensembed.cli import main
from ensembed.methods.autoencoder import training_loop as training
training._KEEP_EVERY = 0.0
epoch = training.Stepper.epoch
def stop(stepper, number):
    if number == 3:
        print("stopped", flush=True)
        time.sleep(600)
    return epoch(stepper, number)
training.Stepper.epoch = stop
sys.exit(main())
"""


def test_the_same_command_goes_on_after_kill_9(tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("\n".join(SENTENCES))
    store = tmp_path / "store"
    arguments = ["fit", str(tmp_path / "corpus.txt"), "-e", MEMBERS[0], "-e", MEMBERS[1], "--store", str(store)]
    arguments += ["--method", "ae", "--dim", "4", "--loss", "mse", "--epochs", "6", "--batch-size", "32"]
    arguments += ["--device", "cpu", "--out", str(tmp_path / "model"), "--json"]
    process = subprocess.Popen(
        [sys.executable, "-c", STOPPING, *arguments], stdout=subprocess.PIPE, text=True, env=os.environ
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "stopped\n"
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=120)
    assert kept(store) == ["training.safetensors"]
    epochs: list[int] = []
    model = Ensemble(MEMBERS).fit(tmp_path / "corpus.txt", METHOD, store=ViewStore(store), progress=reporter(epochs))
    assert epochs == [4, 5, 6]
    whole = Ensemble(MEMBERS).fit(SENTENCES, METHOD, store=ViewStore(tmp_path / "whole"))
    np.testing.assert_array_equal(model.encode(WORDS), whole.encode(WORDS))
