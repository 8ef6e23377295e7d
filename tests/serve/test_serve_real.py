"""A server of real encoders: many clients at once get the vectors that `encode` gives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import numpy as np
import openai
import pytest
from serving import serving

from ensembed import Ensemble, load
from ensembed.methods import Auto

TEXTS = [f"{who} {what} {where}." for who in ("A dog", "My aunt", "Nobody") for what in ("sleeps", "sings loudly")
         for where in ("at home", "in the old town by the river", "today")]  # fmt: skip


@pytest.mark.real
def test_many_clients_get_the_vectors_of_real_encoders(pulled: Callable[[str], Path], tmp_path: Path) -> None:
    for name in ("minilm", "wordllama"):
        pulled(name)
    Ensemble(["minilm", "wordllama"]).fit(TEXTS, Auto(weights=(1.0, 0.3))).save(tmp_path / "two")
    model = load(tmp_path / "two")

    async def work(url: str) -> list[list[float]]:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", timeout=60) as client:
            replies = await asyncio.gather(*(client.embeddings.create(model="two", input=text) for text in TEXTS * 3))
        return [reply.data[0].embedding for reply in replies]

    with serving(tmp_path, "cli", str(tmp_path / "two"), "--port", "0", "--cache-mb", "0") as server:
        rows = np.array(asyncio.run(work(server.url)))
        assert server.stop() == 0
    # Who else is in a batch changes how far texts are padded, and the last digits with it.
    np.testing.assert_allclose(rows, np.tile(model.encode(TEXTS), (3, 1)), atol=1e-5)
