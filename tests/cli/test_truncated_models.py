"""`my-model?truncate_dim=K`: the leading dimensions of a saved model, wherever a model is named."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from ensembed import Ensemble, load
from ensembed.cli import main
from ensembed.encoders.base import UntrustedName
from ensembed.errors import ConsentError, DimensionError, InputError, UnknownEncoderError
from ensembed.models.opening import open_model
from ensembed.search import Index

SENTENCES = [f"the {i} sentences of {i % 7} others and {i % 11}" for i in range(120)]
MEMBERS = ["demo?dim=12&seed=1", "demo?dim=8&seed=2"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Go to a folder with a corpus, pairs and a model of twenty dimensions."""
    monkeypatch.chdir(tmp_path)
    Path("corpus.txt").write_text("\n".join(SENTENCES))
    Path("pairs.tsv").write_text("".join(f"{i}\ta dog\tthe {i} sentences\n" for i in range(4)))
    Ensemble(MEMBERS).fit(SENTENCES, "conc").save("model")
    return tmp_path


def test_the_name_keeps_the_leading_dimensions(folder: Path) -> None:
    expected = load("model").truncate(5).encode(SENTENCES)
    for model in (load("model?truncate_dim=5"), open_model(f"{folder}/model?truncate_dim=5")):
        np.testing.assert_array_equal(model.encode(SENTENCES), expected)
        assert model.spec.name == "model?truncate_dim=5"  # which opens it again
    assert load("model?truncate_dim=5", missing="drop", time_limit=9.0).time_limit == 9.0


def test_a_wrong_number_of_dimensions_is_named_and_not_the_folder(folder: Path) -> None:
    for place in ("model", folder / "model"):
        with pytest.raises(DimensionError, match="cannot truncate to -2 dimensions"):
            load(place, truncate_dim=-2)
    with pytest.raises(InputError, match="the name of a model is empty"):
        load("", truncate_dim=4)


@pytest.mark.parametrize(
    "command",
    [
        ["encode", "MODEL", "corpus.txt", "--json"],
        ["similarity", "MODEL", "a dog", "the others"],
        ["evaluate", "MODEL", "demo", "--pairs", "pairs.tsv"],
        ["dedupe", "MODEL", "corpus.txt", "--threshold", "0.9"],
        ["cluster", "MODEL", "corpus.txt", "-k", "2"],
        ["compare", "MODEL", "demo", "--corpus", "corpus.txt", "--rows", "60"],
        ["reliability", "corpus.txt", "-e", "MODEL", "-e", "demo"],
        ["index", "index", "corpus.txt", "--model", "MODEL"],
    ],
    ids=" ".join,
)
@pytest.mark.usefixtures("folder")
def test_every_command_takes_it(capsys: pytest.CaptureFixture[str], command: list[str]) -> None:
    name = "model?truncate_dim=5"
    assert main([name if word == "MODEL" else word for word in command]) == 0, capsys.readouterr().err
    if command[0] == "encode":
        assert len(json.loads(capsys.readouterr().out.splitlines()[0])["vector"]) == 5


def test_an_index_remembers_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["index", "index", "corpus.txt", "--model", "model?truncate_dim=5", "-q"]) == 0
    monkeypatch.chdir("/")
    assert Index.open(folder / "index").model.dim == 5
    assert main(["search", str(folder / "index"), "the 3 sentences"]) == 0


@pytest.mark.usefixtures("folder")
def test_a_moved_member_of_it_is_opened() -> None:
    moved = "demo?dim=12&seed=1=demo?seed=1&dim=12"
    assert main(["similarity", "model?truncate_dim=5", "a dog", "the others", "-e", moved]) == 0


@pytest.mark.usefixtures("folder")
def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DimensionError, match="cannot truncate to 21 dimensions: there are 20"):
        load("model?truncate_dim=21")
    for option in ("normalize=true", "truncate_dim=x", "truncate_dim=5&prefix=a"):
        with pytest.raises(InputError, match=r"a saved model has one option, as in model\?truncate_dim"):
            open_model(f"model?{option}")
    with pytest.raises(UnknownEncoderError, match="neither a folder with a saved model nor an encoder"):
        open_model("other?truncate_dim=5")
    (tmp_path / "link").symlink_to("/proc/self")
    for name in ("link", "link?truncate_dim=5"):
        with pytest.raises(ConsentError, match="no plain file or folder"):
            open_model(UntrustedName(name))


def test_fit_shows_what_truncated_vectors_keep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus, members = tmp_path / "corpus.txt", ["-e", "demo?dim=90&seed=1", "-e", "demo?dim=80&seed=2"]
    corpus.write_text("\n".join(f"the {i} sentences of {i % 7} others and {i % 11}" for i in range(1200)))
    for method in ("auto", "conc", "avg", "svd", "gcca"):
        folder = tmp_path / method
        fit = ["fit", str(corpus), *members, "--method", method, "--out", str(folder), "-q"]
        assert main([*fit, "--dim", "80"] if method in ("svd", "gcca") else fit) == 0
        assert "ten nearest, these parts are kept: " in capsys.readouterr().out
        model = load(folder)
        kept = model.method["neighbours_kept"]
        assert list(kept) == [str(k) for k in (32, 64, 128) if k < model.dim]
        assert 0 < kept["32"] <= kept["64"] <= 1
        assert "at 64" not in str(model.truncate(40))
        assert " at 32" in str(model.truncate(40))
