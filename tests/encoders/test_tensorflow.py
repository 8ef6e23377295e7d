"""How TensorFlow is started: quietly, without a whole GPU, beside the other libraries."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from make_tfhub import make_tf1, make_tf2, pack

from ensembed.encoders.tfhub import tensorflow_start as tensorflow
from ensembed.encoders.tfhub.tensorflow_start import start_tensorflow
from ensembed.errors import MissingError


def test_broken_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "broken_package.py").write_text("raise ImportError('undefined symbol: f')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MissingError, match=r"cannot be imported: ImportError: undefined symbol: f; repair it"):
        tensorflow.import_quietly("broken_package")


def test_gpu_memory_grows_as_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[object] = []

    def too_late(_threads: int) -> None:
        raise RuntimeError("Intra op parallelism cannot be modified after initialization.")

    config = SimpleNamespace(
        threading=SimpleNamespace(set_intra_op_parallelism_threads=too_late, set_inter_op_parallelism_threads=too_late),
        list_physical_devices=lambda kind: [f"{kind}:0"],
        experimental=SimpleNamespace(
            set_memory_growth=lambda gpu, on: done.append((gpu, on)),
            enable_tensor_float_32_execution=done.append,
        ),
    )
    monkeypatch.setitem(sys.modules, "tensorflow", SimpleNamespace(config=config, constant=done.append))
    start_tensorflow(threads=2)
    assert done == [("GPU:0", True), False, 0]


LOG = b"""\
WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
I0000 00:00:1794749909.358854   15728 port.cc:153] oneDNN custom operations are on.
a line of another thread
E0000 00:00:1794750085.356373   17505 cuda_platform.cc:52] failed call to cuInit
"""


@pytest.mark.parametrize("level", [None, "0"])
def test_only_lines_of_the_log_are_dropped(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, level: str | None
) -> None:
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)
    if level:
        monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", level)
    with tensorflow._without_log():
        os.write(2, LOG)
    os.write(2, b"after\n")
    assert capfd.readouterr().err == (LOG.decode() if level else "a line of another thread\n") + "after\n"


def test_missing_standard_error_is_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(_descriptor: int) -> int:
        raise OSError("bad file descriptor")

    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)
    monkeypatch.setattr(os, "dup", closed)
    with tensorflow._without_log():
        pass


SCRIPT = """
import sys
from concurrent.futures import ThreadPoolExecutor

def tensorflow():
    from ensembed.encoders import open_encoder
    encoders = [open_encoder(name, threads=1) for name in sys.argv[2:]]
    def run(_):
        return [float(abs(encoder.encode(["a man", f"dogs", ""])).sum()) for encoder in encoders]
    with ThreadPoolExecutor(4) as pool:
        print(len({tuple(round(x, 4) for x in sums) for sums in pool.map(run, range(20))}))
    print(sys.modules["tensorflow"].config.threading.get_intra_op_parallelism_threads())

def torch():
    import torch
    print(int(torch.nn.Linear(64, 64)(torch.ones(500, 64)).shape[0]))

def onnx():
    import numpy as np, onnx.helper as h, onnxruntime
    x, y = (h.make_tensor_value_info(name, 1, [None, 64]) for name in "xy")
    graph = h.make_graph([h.make_node("Tanh", ["x"], ["y"])], "g", [x], [y])
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 13)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    print(len(session.run(None, {"x": np.ones((500, 64), np.float32)})[0]))

for library in sys.argv[1].split():
    globals()[library]()
"""


def test_tensorflow_is_quiet_and_works_beside_torch_and_onnxruntime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The other order is that of the whole run of tests, where torch and onnxruntime come first.
    order = ["tensorflow", "torch", "onnx", "tensorflow"]
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)
    tf1, tf2 = make_tf1(tmp_path / "tf1"), make_tf2(tmp_path / "tf2")
    names = [f"tfhub:{path}" for path in (tf1, tf2, pack(tf2, tmp_path / "tf2.tar.gz"))]
    command = [sys.executable, "-c", SCRIPT, " ".join(order), *names]
    child = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert child.stderr == ""
    assert child.returncode == 0
    assert child.stdout == "".join("1\n1\n" if library == "tensorflow" else "500\n" for library in order)
