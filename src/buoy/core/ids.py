"""Ids: who a run, a leaf, a question and a runner are.

Invariant: an identity depends only on what workflow code did (its order of creation), never on timing, so that a replay
finds every leaf again. `run/scope/name#occurrence/epoch` is the idempotency key and the question id.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import NewType

from buoy.core.limits import DEDUPE_CHARS_MAX, MESSAGE_DEDUPE_CHARS_MAX, NAME_CHARS_MAX, RUN_ID_CHARS_MAX
from buoy.errors import BadInput

RunId = NewType("RunId", str)
RunnerId = NewType("RunnerId", str)
LeafId = NewType("LeafId", str)
TaskId = NewType("TaskId", str)
BranchId = NewType("BranchId", int)

ROOT_BRANCH = BranchId(0)

# Ids become file names and object keys: no slash, no leading dot, nothing that a shell or a path would read.
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")
# Step and workflow names stand before '#' and after '/' in a leaf id.
NAME = "[A-Za-z_][A-Za-z0-9_.:<>-]*"
_NAME = re.compile(NAME + r"\Z")


def check_run_id(text: str, what: str = "run id") -> RunId:
    """The text as a run id, or as another name that run ids begin with, or a clear refusal."""
    if not isinstance(text, str):
        raise BadInput(f"a {what} must be a text: {text!r}")
    if not is_run_id(text):
        raise BadInput(
            f"{what} {text[:60]!r} is not allowed: use letters, digits, '.', '_' and '-', "
            f"beginning with a letter or digit, at most {RUN_ID_CHARS_MAX} characters"
        )
    return RunId(text)


def is_run_id(text: str) -> bool:
    """Whether the text may be the id of a run (or of a runner, or the name of a schedule)."""
    return len(text) <= RUN_ID_CHARS_MAX and _RUN_ID.match(text) is not None


def check_name(text: str, what: str) -> str:
    """The text as the name of a step, workflow, signal or queue, or a clear refusal."""
    if not isinstance(text, str):
        raise BadInput(f"a {what} name must be a text: {text!r}")
    if len(text) > NAME_CHARS_MAX or not _NAME.match(text):
        raise BadInput(
            f"{what} name {text[:60]!r} is not allowed: use letters, digits, '_', '.', ':' and '-', "
            f"beginning with a letter, at most {NAME_CHARS_MAX} characters"
        )
    return text


def check_dedupe(text: str, chars_max: int = DEDUPE_CHARS_MAX) -> str:
    """The text as a dedupe id, or a clear refusal."""
    if not text or len(text) > chars_max or not text.isprintable():
        raise BadInput(f"dedupe id {text[:60]!r} is not allowed: 1 to {chars_max} printable characters")
    return text


def check_message_dedupe(text: str) -> str:
    """The dedupe id of a message as it is stored, or a clear refusal."""
    return check_dedupe(text, MESSAGE_DEDUPE_CHARS_MAX)


def leaf_id(scope: str, name: str, occurrence: int) -> LeafId:
    """`scope/name#occurrence`; the root scope is left out, since most leaves live there."""
    return LeafId(f"{scope}/{name}#{occurrence}" if scope else f"{name}#{occurrence}")


def leaf_scope(leaf: LeafId) -> str:
    """The scope part of a leaf id; empty for the root scope."""
    return leaf.rpartition("/")[0]


def effect_key(run: RunId, leaf: LeafId, epoch: int) -> str:
    """The idempotency key and question id of a leaf. Recovery keeps it; the user's own retry raises the epoch."""
    return f"{run}/{leaf}/{epoch}"


@lru_cache(maxsize=256)
def child_run_id(run: RunId, leaf: LeafId, epoch: int) -> RunId:
    """The id of a child run: readable, and the same at every replay, since it is made of its parent's leaf."""
    digest = hashlib.sha256(effect_key(run, leaf, epoch).encode()).hexdigest()[:12]
    name = re.sub(r"[^A-Za-z0-9_-]", "-", leaf.rpartition("/")[2].partition("#")[0])
    return RunId(f"{run[:72]}.{name[:40]}-{digest}")


def successor_id(run: RunId) -> RunId:
    """The id of the run that continues this one."""
    root, number = chain_of(run)
    return RunId(f"{root[:120]}.c{number + 1}")


def chain_of(run: RunId) -> tuple[RunId, int]:
    """The first run of a chain of successors, and this one's place in it."""
    root, dot, number = run.rpartition(".c")
    if dot and root and number.isdecimal():
        return RunId(root), int(number)
    return run, 1


def orchestrate_task_id(run: RunId, generation: int) -> TaskId:
    """The task that drives a run. A new generation replaces one that ended while its run was still active."""
    return TaskId(f"{run}:orchestrate:{generation}")
