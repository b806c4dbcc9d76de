"""Identities of runs, leaves, questions and tasks."""

from __future__ import annotations

import pytest

from buoy.core.ids import (
    LeafId,
    RunId,
    check_dedupe,
    check_name,
    check_run_id,
    effect_key,
    leaf_id,
    leaf_scope,
    orchestrate_task_id,
)
from buoy.core.limits import DEDUPE_CHARS_MAX, NAME_CHARS_MAX, RUN_ID_CHARS_MAX
from buoy.errors import BadInput


@pytest.mark.parametrize("text", ["a", "7", "order-2024.02_29", "A" * RUN_ID_CHARS_MAX])
def test_a_run_id_that_can_be_a_file_name_is_taken(text: str) -> None:
    assert check_run_id(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "..",
        "-a",
        "_a",
        ".hidden",
        "a/b",
        "a\\b",
        "a b",
        "a\n",
        "ä",
        "a#1",
        "a\x00",
        "A" * (RUN_ID_CHARS_MAX + 1),
    ],
)
def test_a_run_id_that_a_path_or_a_shell_would_read_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="is not allowed: use letters"):
        check_run_id(text)


@pytest.mark.parametrize("text", ["charge", "shop.orders:charge", "outer.<locals>.inner", "_x", "a" * NAME_CHARS_MAX])
def test_names_as_python_gives_them_are_taken(text: str) -> None:
    assert check_name(text, "step") == text


@pytest.mark.parametrize("text", ["", "1a", "a/b", "a#b", "a b", "a!b", "a\n", "a" * (NAME_CHARS_MAX + 1)])
def test_a_name_that_would_break_a_leaf_id_is_refused_with_its_kind(text: str) -> None:
    with pytest.raises(BadInput, match=r"signal name .* is not allowed"):
        check_name(text, "signal")


@pytest.mark.parametrize("text", ["", "a\n", "\x00", "a" * (DEDUPE_CHARS_MAX + 1)])
def test_a_dedupe_id_that_cannot_be_shown_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="dedupe id"):
        check_dedupe(text)


def test_a_dedupe_id_may_be_any_short_text() -> None:
    assert check_dedupe("run/a#1: größe") == "run/a#1: größe"


def test_a_refusal_does_not_repeat_a_long_text() -> None:
    for check in (check_run_id, check_dedupe):
        with pytest.raises(BadInput) as caught:
            check("x" * 100_000)
        assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("scope", "leaf"), [("", "charge#1"), ("g.1", "g.1/charge#1"), ("g.1/h.2", "g.1/h.2/charge#1")]
)
def test_a_leaf_is_scope_name_and_occurrence(scope: str, leaf: str) -> None:
    assert leaf_id(scope, "charge", 1) == leaf
    assert leaf_scope(LeafId(leaf)) == scope


def test_two_leaves_never_share_a_key() -> None:
    keys = {
        effect_key(RunId(run), leaf_id(scope, name, occurrence), epoch)
        for run in ("r", "r1")
        for scope in ("", "a", "a/b")
        for name in ("a", "b")
        for occurrence in (1, 11)
        for epoch in (0, 1)
    }
    assert len(keys) == 2 * 3 * 2 * 2 * 2
    assert effect_key(RunId("r"), LeafId("a/b#2"), 1) == "r/a/b#2/1"


def test_the_task_that_drives_a_run_is_named_by_run_and_generation() -> None:
    assert orchestrate_task_id(RunId("r"), 3) == "r:orchestrate:3"
