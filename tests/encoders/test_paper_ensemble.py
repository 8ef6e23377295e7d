"""`--ensemble paper` from end to end, with small models of the same three kinds where the paper's are."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from make_paranmt import make_paranmt_zip
from make_st import make_st
from make_tfhub import make_tf1

from ensembed import load
from ensembed.cli import main
from ensembed.encoders import open_encoder
from ensembed.encoders.names_and_consent import parse_name
from ensembed.errors import ConsentError
from ensembed.models import named_ensembles as ensembles
from ensembed.models.named_ensembles import ENSEMBLES


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server of the archive; its address."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    folder = tmp_path / "site" / "~jwieting"
    folder.mkdir(parents=True)
    make_paranmt_zip(folder / "para-nmt-50m-demo.zip")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "site")))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_fit_the_ensemble_of_the_paper(
    tmp_path: Path, site: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = parse_name(ENSEMBLES["paper"][0]).location.replace("http://www.cs.cmu.edu", site)
    members = (f"paranmt:{archive}", f"tfhub:{make_tf1(tmp_path / 'use')}", make_st(tmp_path / "sbert"))
    assert [name.partition(":")[0] for name in members] == [name.partition(":")[0] for name in ENSEMBLES["paper"]]
    monkeypatch.setattr(ensembles, "ENSEMBLES", {"paper": members})

    corpus, out = tmp_path / "corpus.txt", tmp_path / "paper-model"
    corpus.write_text(
        "\n".join(f"the {a} dog sees {b} cats and says the {c} man" for a in "abcd" for b in "efg" for c in "hij")
    )
    command = ["fit", str(corpus), "--ensemble", "paper", "--method", "gcca", "--dim", "8", "--out", str(out), "-q"]
    assert main([*command, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["members"] == list(members)
    assert (result["dim"], result["rows"]) == (8, 36)
    assert open_encoder(f"{members[0]}?combination=add").spec.dim == 12  # an address takes options too
    with pytest.raises(ConsentError, match=r"downloads http.*trust=True"):  # its members are programs and addresses
        load(out)
    vectors = load(out, trust=True).encode(["A dog sees a man.", "cats said"])
    assert vectors.shape == (2, 8)
    assert np.isfinite(vectors).all()
