"""Run by the tests in a process of its own: trains with a checkpoint after every epoch, and kills itself on the way.

Arguments: the folder of the checkpoint, and when to die: `epoch 5`, in its report, or `sync 5`, while the fifth
checkpoint is on its way to the disk, of which half the bytes are lost.
"""

from __future__ import annotations

import itertools
import os
import signal
import stat
import sys
from pathlib import Path

import numpy as np
from method_views import Array, make_views

from ensembed.methods import Autoencoder
from ensembed.methods.autoencoder import training_loop as training

METHOD = Autoencoder(dim=4, loss="mse", view_dropout=0.2, epochs=9, batch_size=64, learning_rate=3e-3)


def views() -> list[Array]:
    """What is trained on: three batches and a smaller one."""
    return [view.astype(np.float32) / 10 for view in make_views(200, (6, 5, 4))]


def main(folder: Path, event: str, number: int) -> None:
    sync, syncs = os.fsync, itertools.count(1)

    def torn_sync(descriptor: int) -> None:
        if stat.S_ISREG(os.fstat(descriptor).st_mode) and next(syncs) == number:
            os.truncate(descriptor, os.fstat(descriptor).st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)
        sync(descriptor)

    def report(label: str, done: int, _total: int | None, /) -> None:
        if event == "epoch" and label.startswith("train") and done == number:
            os.kill(os.getpid(), signal.SIGKILL)

    if event == "sync":
        os.fsync = torn_sync  # type: ignore[assignment] # the process is made to die
    training._KEEP_EVERY = 0.0
    METHOD.fit(views(), threads=1, progress=report, checkpoint=folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
