"""The OpenAPI description is true: requests made from it, good and bad, get the replies it tells of."""

from __future__ import annotations

from typing import Any

import schemathesis
from hypothesis import HealthCheck, settings
from served_child import Odd

from ensembed.serve import Settings, create_app

app = create_app(Odd(), settings=Settings(max_items=50, max_characters=200))
# Without /ready, which is right to say 503 before the model has encoded once.
schema = schemathesis.openapi.from_asgi("/openapi.json", app).exclude(path="/ready")


@schema.parametrize()
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_operation_keeps_its_word(case: Any) -> None:  # noqa: ANN401 - one of its own classes
    case.call_and_validate()
