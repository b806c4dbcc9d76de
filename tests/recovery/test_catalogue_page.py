"""The documentation has the catalogue as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from buoy.core.diagnosis.catalogue import CATALOGUE, named
from buoy.errors import BadInput
from buoy.operations.catalogue_page import BEGIN, END, with_table

PAGE = Path(__file__).parents[2] / "docs" / "recovery.md"


def test_the_page_has_the_catalogue_as_it_is() -> None:
    text = PAGE.read_text()
    assert text == with_table(text), "write it again: python -m buoy.operations.catalogue_page docs/recovery.md"
    assert all(f"| {named(code)} |" in text for code in CATALOGUE)


def test_only_what_is_between_the_marks_is_replaced() -> None:
    made = with_table(f"before\n{BEGIN}former\n{END}after\n")
    assert made.startswith("before\n")
    assert made.endswith(f"{END}after\n")
    assert "former" not in made


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(BadInput, match="no place"):
        with_table("nothing")
