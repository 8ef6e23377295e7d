"""Headings and sentences of pages, and ranks of answers."""

from __future__ import annotations

import numpy as np

from ensembed import open_encoder
from experiments.before_after import page, paragraphs, ranks

PAGE = """# A title

First sentence. Second, with a [link](x.md) and `code`.

    a command

| a | table |

## Why?
Because of this:

```python
print("no text")
```

- An item. Another one.
"""


def test_paragraphs_are_prose_without_code_and_tables() -> None:
    assert list(paragraphs(PAGE)) == [
        ("A title", ["First sentence.", "Second, with a link and code."]),
        ("Why?", ["Because of this:"]),
        ("Why?", ["An item.", "Another one."]),
    ]


def test_the_rank_of_an_answer_is_one_if_it_is_nearest() -> None:
    answers = ["a dog runs fast", "the cat sleeps here", "stocks fell today"]
    encoder = open_encoder("demo?dim=256")
    assert ranks(encoder, answers, answers).tolist() == [1, 1, 1]
    assert ranks(encoder, answers[::-1], answers)[1] == 1
    assert np.all(ranks(encoder, [answers[1]] * 3, answers)[[0, 2]] > 1)


def test_the_page_has_a_line_for_each_question_and_both_means() -> None:
    means = {"one": 0.5, "ensemble": 1.0}
    results = {
        "systems": ["one", "ensemble"],
        "answers": 7,
        "sentences": 20,
        "questions": [{"question": "Why?", "answer": "Because.", "ranks": {"one": 2, "ensemble": 1}}],
        "mean_reciprocal_rank": {"shown": means, "all": means},
        "provenance": {"ensembed": "0"},
    }
    text = page(results)
    assert "| Why? | 2 | 1 |" in text
    assert "| mean reciprocal rank, all 7 headings | 0.500 | 1.000 |" in text
