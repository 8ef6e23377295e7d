"""The pages on encoders name every kind and every option."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ensembed.encoders import open_encoder
from ensembed.encoders.names_and_consent import KINDS
from ensembed.errors import InputError

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "encoders.md").read_text()
SECTIONS = PAGE.split("\n## ")


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_section_with_all_its_options(kind: str) -> None:
    with pytest.raises(InputError, match="has no option") as failure:
        open_encoder(f"{kind}:http://localhost#x?no-such-option=1")
    options = str(failure.value).rpartition("it has: ")[2].split(", ")
    (section,) = (part for part in SECTIONS if re.search(rf"`{kind}[:`]", part.partition("\n")[0]))
    common = next(part for part in SECTIONS if part.startswith("Options of every"))
    for option in options:
        assert re.search(rf"`{option}[`=]", section + common), (
            f"docs/reference/encoders.md does not explain {option} of {kind}:"
        )


@pytest.mark.parametrize("kind", KINDS)
def test_the_table_has_a_line_for_every_kind(kind: str) -> None:
    assert re.search(rf"^\| `{kind}[:`][^|]*\| [^|]+\| [^|]*\|$", PAGE, re.MULTILINE)


def test_every_extra_is_on_the_page_about_installing() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    section = text[text.index("[project.optional-dependencies]") : text.index("[project.scripts]")]
    extras = set(re.findall(r"^([\w-]+) = \[", section, re.MULTILINE))
    page = (ROOT / "docs" / "start" / "install.md").read_text()
    assert extras
    assert [extra for extra in extras if f"`{extra}`" not in page] == []
