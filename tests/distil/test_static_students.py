"""Static students: trained, interrupted, saved, and opened by three libraries."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distil_cases import CORPUS, SENTENCES, TEACHER, small_plan
from safetensors.numpy import load_file

from ensembed.corpora.corpus import ListCorpus
from ensembed.distil.distil_job import Job, decode, encode, seal
from ensembed.distil.distillation import Plan, distil, prepare, save_trained
from ensembed.distil.static_files import save_folder
from ensembed.distil.student_card import shown_name
from ensembed.distil.student_training import train, write_trained
from ensembed.encoders import DemoEncoder, open_encoder
from ensembed.errors import DimensionError, EncoderError, InputError, ModelError, TrainingError
from ensembed.numerics.row_matrices import unit_rows
from ensembed.support.checks import sha256_of
from ensembed.testing import files_of
from ensembed.views import ViewStore

TEXTS = ["a man is playing the guitar", "cats run so", "two dogs !", ""]


@pytest.fixture
def store(tmp_path: Path) -> ViewStore:
    return ViewStore(tmp_path / "store")


def cosines(X: Any, Y: Any) -> Any:  # noqa: ANN401 - arrays
    return np.einsum("ij,ij->i", unit_rows(np.asarray(X, np.float32)), unit_rows(np.asarray(Y, np.float32)))


def test_a_student_learns_its_teacher_and_says_how_far(tmp_path: Path, store: ViewStore) -> None:
    student = distil(TEACHER, CORPUS, small_plan(tmp_path, leading=(8,)), tmp_path / "out", store=store, threads=1)
    start, best = student.result["start"], student.result["best"]
    assert best["overlap"] > start["overlap"]
    assert best["spearman"] > start["spearman"] + 0.1
    assert set(student.result["leading"]) == {"8"}
    assert student.result["facts"]["held_out"] == len(SENTENCES) // 10
    card = (tmp_path / "out" / "README.md").read_text()
    assert f"{100 * best['overlap']:.1f}%" in card
    assert "demo" in card
    assert str(tmp_path) not in card
    assert not list((tmp_path / "store" / "training").iterdir())


@pytest.mark.parametrize("precision", ["float32", "float16", "int8"])
def test_three_libraries_open_a_student(tmp_path: Path, store: ViewStore, precision: Any) -> None:  # noqa: ANN401 - a literal
    from model2vec import StaticModel
    from sentence_transformers import SentenceTransformer

    folder = tmp_path / "out"
    plan = small_plan(tmp_path, epochs=2, precision=precision)
    distil(TEACHER, CORPUS, plan, folder, store=store, threads=1)
    ours = open_encoder(f"model2vec:{folder}").encode(TEXTS[:3])
    assert ours.shape == (3, 12)
    np.testing.assert_allclose(np.linalg.norm(ours, axis=1), 1, atol=1e-3)
    exact = 1e-5 if precision == "float32" else 1e-4
    others = [StaticModel.from_pretrained(str(folder)).encode(TEXTS[:3])]
    others.append(SentenceTransformer(str(folder), device="cpu").encode(TEXTS[:3]))
    if precision != "int8":
        others.append(open_encoder(f"static:{folder}").encode(TEXTS[:3]))
    for vectors in others:
        assert cosines(ours, vectors).min() > 1 - exact
    whole = tmp_path / "whole"
    distil(TEACHER, CORPUS, small_plan(tmp_path, epochs=2), whole, store=store, threads=1)
    assert cosines(ours, open_encoder(f"model2vec:{whole}").encode(TEXTS[:3])).min() > 0.9995


def test_starts_of_every_kind(tmp_path: Path, store: ViewStore) -> None:
    """Tokens sent through the teacher, a static model's own table, both, and nothing."""
    how: dict[str, Any] = {"store": store, "threads": 1}
    nothing = distil(TEACHER, CORPUS, small_plan(tmp_path, epochs=1), tmp_path / "0", **how).result["start"]
    members = distil(TEACHER, CORPUS, small_plan(tmp_path, start=None, epochs=1), tmp_path / "1", **how)
    assert members.result["start"]["spearman"] > nothing["spearman"] + 0.3
    static = f"model2vec:{tmp_path / '1'}"
    plan = Plan(start=(static,), dim=12, epochs=1)  # the tokenizer is the start's
    again = distil(TEACHER, CORPUS, plan, tmp_path / "2", **how)
    # Ridge regression from vectors that predict the teacher well: nearly as good as these, and then trained further.
    assert again.result["start"]["spearman"] > members.result["start"]["spearman"] - 0.1
    both = distil(TEACHER, CORPUS, Plan(start=(static, "demo?dim=24"), dim=12, epochs=1), tmp_path / "3", **how)
    assert [part["name"] for part in both.facts["source"]["start"]] == ["model2vec:1", "demo?dim=24"]


def test_vectors_of_your_own_teach_as_well(tmp_path: Path, store: ViewStore) -> None:
    np.save(tmp_path / "vectors.npy", TEACHER.encode(SENTENCES))
    plan = small_plan(tmp_path, epochs=2)
    by_file = distil(tmp_path / "vectors.npy", CORPUS, plan, tmp_path / "a", store=store, threads=1)
    by_name = distil(TEACHER, CORPUS, plan, tmp_path / "b", store=store, threads=1)
    assert by_file.result["best"] == by_name.result["best"]
    np.save(tmp_path / "short.npy", TEACHER.encode(SENTENCES[:50]))
    with pytest.raises(InputError, match=r"short.npy holds float32 of shape \(50, 24\)"):
        distil(tmp_path / "short.npy", CORPUS, plan, tmp_path / "c", store=store)


def interrupted(at: int) -> Any:  # noqa: ANN401 - a progress
    """Return a progress that raises KeyboardInterrupt at a step."""

    def report(label: str, done: int, _total: int | None, /) -> None:
        if label.startswith("train ·") and done == at:
            raise KeyboardInterrupt

    return report


def test_an_interrupted_training_goes_on_to_the_same_bits(tmp_path: Path, store: ViewStore) -> None:
    plan = small_plan(tmp_path)
    whole = train(prepare(TEACHER, CORPUS, plan, tmp_path / "whole", store=store), threads=1)
    job = prepare(TEACHER, CORPUS, plan, tmp_path / "job", store=store)
    with pytest.raises(KeyboardInterrupt):
        train(job, threads=1, keep_every=0, progress=interrupted(23))
    steps: list[int] = []
    again = train(job, threads=1, progress=lambda _label, done, _total: steps.append(done))
    assert steps[0] > 12
    assert again.best == whole.best
    for name, weights in whole.weights.items():
        np.testing.assert_array_equal(again.weights[name], weights)


KILLED = """
import os, signal, sys
from pathlib import Path
from ensembed.distil.distil_job import Job
from ensembed.distil.student_training import train

def kill(label, done, total):
    if label.startswith("train ·") and done == 20:
        os.kill(os.getpid(), signal.SIGKILL)

train(Job.open(Path(sys.argv[1])), threads=1, keep_every=0, progress=kill)
"""


def test_a_killed_training_goes_on_on_a_machine_with_torch_alone(tmp_path: Path, store: ViewStore) -> None:
    plan = small_plan(tmp_path)
    job = prepare(TEACHER, CORPUS, plan, tmp_path / "job", store=store)
    assert subprocess.run([sys.executable, "-c", KILLED, str(job.folder)], check=False).returncode == -signal.SIGKILL
    blocked = ["scipy", "onnxruntime", "click", "rich", "threadpoolctl", "tokenizers", "transformers"]
    program = (
        f"import sys; sys.modules.update(dict.fromkeys({blocked!r}))\n"
        "import torch; torch.set_num_threads(1)\n"
        f"from ensembed.distil.student_training import main; sys.exit(main([{str(job.folder)!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    student = save_trained(job.folder, tmp_path / "out")
    whole = train(prepare(TEACHER, CORPUS, plan, tmp_path / "whole", store=store), threads=1)
    assert student.result["best"] == whole.best.to_json() == json.loads(done.stdout)["best"]
    vectors = whole.weights["vectors"] * np.exp(whole.weights["weights"])
    saved = load_file(tmp_path / "out" / "model.safetensors")["embeddings"]
    assert cosines(saved, vectors)[2:].min() > 1 - 1e-6


def test_a_failed_save_leaves_the_old_student_and_trains_no_second_time(
    tmp_path: Path, store: ViewStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, how = tmp_path / "out", {"store": store, "threads": 1}
    plan = small_plan(tmp_path, epochs=2)
    distil(TEACHER, CORPUS, plan, out, **how)  # type: ignore[arg-type] # of the dict
    before = files_of(out)
    other = small_plan(tmp_path, epochs=3)
    with monkeypatch.context() as patch:
        patch.setattr("ensembed.distil.distillation.save_folder", lambda place, files: save_folder(place, Torn(files)))
        with pytest.raises(ModelError, match="No space left"):
            distil(TEACHER, CORPUS, other, out, force=True, **how)  # type: ignore[arg-type] # of the dict
    assert files_of(out) == before
    reports: list[str] = []
    distil(TEACHER, CORPUS, other, out, force=True, progress=lambda label, *_: reports.append(label), **how)  # type: ignore[arg-type] # of the dict
    assert files_of(out) != before
    assert "train" not in {label.partition(" ")[0] for label in reports}


class Torn(dict[str, bytes]):
    """Files of which the third cannot be written."""

    def items(self) -> Any:  # noqa: ANN401 - a view
        yield from list(super().items())[:2]
        raise OSError(28, "No space left on device")


def sealed(facts: dict[str, Any]) -> dict[str, Any]:
    content = {key: fact for key, fact in facts.items() if key != "seal"}
    return content | {"seal": seal(content)}


def test_jobs_that_are_damaged_are_named(tmp_path: Path, store: ViewStore) -> None:
    job = prepare(TEACHER, CORPUS, small_plan(tmp_path, epochs=1), tmp_path / "job", store=store)
    for name in ("tokens.npy", "targets.npy", "offsets.npy", "start.safetensors", "tokenizer.json"):
        path = job.folder / name
        data = path.read_bytes()
        path.write_bytes(data[:-3] + b"\0\1\2")
        with pytest.raises(ModelError, match=f"{name} was changed"):
            Job.open(job.folder)
        path.write_bytes(data)
    facts = json.loads((job.folder / "job.json").read_text())
    cases: list[Any] = [{}, [], {**facts, "format": 9}, {**facts, "sha256": {"/etc/passwd": ""}}]
    # What no file of a student can have.
    cases += [sealed({**facts, "other": other}) for other in ("\ud800", float("nan"))]
    for wrong in cases:
        (job.folder / "job.json").write_text(json.dumps(wrong))
        with pytest.raises(ModelError, match="job"):
            Job.open(job.folder)
    (job.folder / "job.json").unlink()
    with pytest.raises(ModelError, match=r"there is no job.json"):
        Job.open(job.folder)


def test_a_job_whose_rows_do_not_fit_its_facts_says_which(tmp_path: Path, store: ViewStore) -> None:
    folder = prepare(TEACHER, CORPUS, small_plan(tmp_path), tmp_path / "job", store=store).folder
    facts, targets = json.loads((folder / "job.json").read_text()), np.load(folder / "targets.npy")
    rows = len(targets)
    for variants, kept, problem in [
        (-1, rows, f"-1 of its {rows} rows are variants"),
        (rows - 99, rows, f"{rows - 99} of its {rows} rows are variants"),
        (0, 99, r"targets.npy has the shape \(99, 12\)"),
    ]:
        np.save(folder / "targets.npy", targets[:kept])
        hashes = {**facts["sha256"], "targets.npy": sha256_of(folder / "targets.npy")}
        (folder / "job.json").write_text(json.dumps(sealed({**facts, "variants": variants, "sha256": hashes})))
        with pytest.raises(ModelError, match=problem):
            Job.open(folder)


def test_a_damaged_job_of_an_interrupted_run_is_made_again(tmp_path: Path, store: ViewStore) -> None:
    plan = small_plan(tmp_path, epochs=2)
    with pytest.raises(KeyboardInterrupt):
        distil(TEACHER, CORPUS, plan, tmp_path / "out", store=store, threads=1, progress=interrupted(3))
    [folder] = (store.root / "training").iterdir()
    (folder / "tokens.npy").write_bytes(b"torn")
    student = distil(TEACHER, CORPUS, plan, tmp_path / "out", store=store, threads=1)
    whole = distil(TEACHER, CORPUS, plan, tmp_path / "whole", store=store, threads=1)
    assert student.result["best"] == whole.result["best"]


def test_a_result_that_was_changed_is_not_saved(tmp_path: Path, store: ViewStore) -> None:
    job = prepare(TEACHER, CORPUS, small_plan(tmp_path, epochs=1), tmp_path / "job", store=store)
    with pytest.raises(ModelError, match="no trained student"):
        save_trained(job.folder, tmp_path / "out")
    write_trained(job, train(job, threads=1))
    (job.folder / "trained.safetensors").write_bytes(b"torn")
    with pytest.raises(ModelError, match="no trained student"):
        save_trained(job.folder, tmp_path / "out")


def test_divergence_is_named(tmp_path: Path, store: ViewStore) -> None:
    job = prepare(TEACHER, CORPUS, small_plan(tmp_path, learning_rate=1e38), tmp_path / "job", store=store)
    with pytest.raises(TrainingError, match=r"lower learning_rate=1e\+38"):
        train(job, threads=1)


def test_numbers_of_a_plan_may_be_those_of_numpy(tmp_path: Path, store: ViewStore) -> None:
    whole = dict.fromkeys(("dim", "epochs", "batch_size", "patience", "sentences", "max_length", "variants"), 120)
    whole |= {"dim": 12, "variants": 1, "seed": 3}
    broken = {"learning_rate": 0.5, "whiten": 0.25, "near": 0.125}
    of_numpy = {name: np.int64(n) for name, n in whole.items()} | {name: np.float32(x) for name, x in broken.items()}
    plan = small_plan(tmp_path, leading=(np.int64(4),), **of_numpy)
    assert plan == small_plan(tmp_path, leading=(4,), **whole, **broken)
    job = prepare(TEACHER, CORPUS, plan, tmp_path / "job", store=store)
    assert job.facts["training"]["learning_rate"] == 0.5


def test_plans_that_cannot_be(tmp_path: Path, store: ViewStore) -> None:
    out = tmp_path / "out"
    for plan, problem in [
        (small_plan(tmp_path, leading=(12,)), "fewer than the student's 12"),
        (Plan(start=("none",)), "needs a tokenizer"),
        (Plan(student="wordllama"), "a student is `static`, or a BERT"),
        (Plan(student="minilm", start=("none",)), "start is for static students"),
        (Plan(student="minilm", precision="int8"), "precision='int8' is for static students"),
    ]:
        with pytest.raises(InputError, match=problem):
            distil(TEACHER, CORPUS, plan, out, store=store)
    with pytest.raises(DimensionError, match="dim=25 is too many"):
        distil(TEACHER, CORPUS, small_plan(tmp_path, dim=25), out, store=store)
    with pytest.raises(InputError, match="needs at least 100"):
        distil(TEACHER, ListCorpus(SENTENCES[:50] * 4), small_plan(tmp_path), out, store=store)
    for name, wrong in (("learning_rate", -1), ("whiten", 2), ("near", -1)):
        for value in (wrong, float("nan"), "0.5"):
            with pytest.raises(InputError, match=f"{name} must be a number .* not {value!r}"):
                small_plan(tmp_path, **{name: value})
    for name, value in (("start", "minilm"), ("leading", 8)):
        with pytest.raises(InputError, match=rf"{name} is a list, not .*: write \({value!r},\)"):
            small_plan(tmp_path, **{name: value})
    with pytest.raises(InputError, match="precision is float32 or float16 or int8, not 'int4'"):
        small_plan(tmp_path, precision="int4")
    for missing in (tmp_path / "nothing.npy", tmp_path):
        with pytest.raises(InputError, match="cannot be read as vectors"):
            distil(missing, CORPUS, small_plan(tmp_path), out, store=store)
    unknown = ListCorpus([chr(0x4E00 + i) for i in range(150)])
    with pytest.raises(InputError, match="the student's tokenizer knows no token in the 150 sentences"):
        distil(TEACHER, unknown, small_plan(tmp_path), out, store=store)
    assert not any((tmp_path / "store" / "training").glob("*/job.json"))
    with pytest.raises(EncoderError, match=r"there is no .*config\.json: name the folder of a BERT"):
        distil(TEACHER, CORPUS, Plan(student=f"st:{tmp_path}"), out, store=store)
    tokenizer: Any = str(tmp_path / "tokenizer.json")
    assert Plan(tokenizer=tokenizer) == Plan(tokenizer=Path(tokenizer))
    for nameless in (Path(), Path("..")):
        with pytest.raises(ModelError, match="the current folder is in it"):
            distil(TEACHER, CORPUS, small_plan(tmp_path), nameless, store=store, force=True)
    out.mkdir()
    (out / "config.json").write_text("{}")
    with pytest.raises(ModelError, match="it holds other files"):
        distil(TEACHER, CORPUS, small_plan(tmp_path), out, store=store, force=True)


def test_a_dim_that_is_not_given_is_what_the_teacher_supports(tmp_path: Path, store: ViewStore) -> None:
    wide = DemoEncoder(dim=300)  # whose vectors of so few words vary in fewer dimensions
    facts = prepare(wide, CORPUS, small_plan(tmp_path, dim=None, start=["none"]), tmp_path / "job", store=store).facts
    with pytest.raises(DimensionError, match=f"vary in {facts['dim']} dimensions: dim=300 is too many"):
        prepare(wide, CORPUS, small_plan(tmp_path, dim=300), tmp_path / "other", store=store)


def test_targets_keep_their_directions() -> None:
    X = np.random.default_rng(0).standard_normal((50, 384)).astype(np.float32)
    X[3] = 0
    assert np.delete(cosines(X, decode(encode(X))), 3).min() > 0.9999
    assert not decode(encode(X))[3].any()


def test_whitening_makes_dimensions_more_equal(tmp_path: Path, store: ViewStore) -> None:
    spreads = []
    for whiten in (0.0, 1.0):
        out = tmp_path / str(whiten)
        distil(TEACHER, CORPUS, small_plan(tmp_path, whiten=whiten), out, store=store, threads=1)
        sizes = np.square(open_encoder(f"model2vec:{out}").encode(SENTENCES)).mean(axis=0)
        spreads.append(sizes.max() / sizes.min())
    assert spreads[1] < 2 < spreads[0]


def test_patience_stops_early(tmp_path: Path, store: ViewStore) -> None:
    plan = small_plan(tmp_path, epochs=40, learning_rate=1e-9, patience=2)
    result = distil(TEACHER, CORPUS, plan, tmp_path / "out", store=store, threads=1).result
    assert result["facts"]["steps"] < 40 * 7 / 2


def test_a_card_names_files_of_this_machine_without_their_folders(tmp_path: Path) -> None:
    (tmp_path / "words.txt").touch()
    name = f"words:{tmp_path}/words.txt?pooling=sif&corpus={tmp_path}/corpus.txt"
    assert shown_name(name) == "words:words.txt?pooling=sif&corpus=corpus.txt"
    assert shown_name("st:org/model?prompt=a/b") == "st:org/model?prompt=a/b"
    assert shown_name("folder/model?truncate_dim=8") == "model?truncate_dim=8"
