"""What a request may hold."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from ensembed.serve.shapes import EmbeddingsRequest, SimilarityRequest


@pytest.mark.parametrize("item", [1, "", []])
def test_of_many_bad_items_the_first_is_enough(item: object) -> None:
    """An error for each of a million would take seconds and gigabytes, while every other client waits."""
    with pytest.raises(ValidationError) as failure:
        EmbeddingsRequest.model_validate({"model": "m", "input": [item] * 10_000})
    assert failure.value.error_count() <= 2  # neither a text nor a list of them
    with pytest.raises(ValidationError) as failure:
        SimilarityRequest.model_validate({"texts": [item] * 10_000})
    assert failure.value.error_count() == 1
