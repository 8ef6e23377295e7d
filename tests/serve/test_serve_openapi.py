"""Requests made from the OpenAPI document, valid and invalid, get the replies that it describes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from served_child import Odd

from ensembed.search import Hit, Index
from ensembed.serve import Settings, create_app


class Later:
    """An index that is made when the tests run: the application is there when they are collected."""

    made: Index

    def __len__(self) -> int:
        return len(self.made)

    def search(self, queries: Any, k: int = 10) -> Sequence[Sequence[Hit]]:  # noqa: ANN401 - texts or vectors
        return self.made.search(queries, k)


model, index = Odd(), Later()
app = create_app(model, index=index, settings=Settings(max_items=50, max_characters=200))
# Without /ready, which is right to say 503 before the model has encoded once.
schema = schemathesis.openapi.from_asgi("/openapi.json", app).exclude(path="/ready")
searched: set[int] = set()


@pytest.fixture(scope="module", autouse=True)
def _index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    index.made = Index.create(tmp_path_factory.mktemp("description") / "index", model)
    index.made.add(["a dog barks", "the cat sleeps", "one more"], metadata=[{"line": i} for i in range(3)])
    yield
    assert not searched or (200 in searched and 404 not in searched)


@schema.parametrize()  # type: ignore[untyped-decorator] # its types are left out (pyproject.toml)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_operation_behaves_as_the_openapi_document_says(case: Any) -> None:  # noqa: ANN401 - one of its own classes
    reply = case.call_and_validate()
    if case.path == "/search":
        searched.add(reply.status_code)
