"""Scoping: whether something belongs to a stack and an env.

Invariants: the env must be the same, and no env is an env of its own: a test never recovers a run of production. A run
without a stack belongs to every stack. A caller that names no stack asks for all of them.
"""

from __future__ import annotations

from typing import Protocol


class Scoped(Protocol):
    @property
    def stack(self) -> str | None: ...

    @property
    def env(self) -> str | None: ...


def in_stack(thing: Scoped, stack: str | None) -> bool:
    return stack is None or thing.stack is None or thing.stack == stack


def in_scope(thing: Scoped, stack: str | None, env: str | None) -> bool:
    return in_stack(thing, stack) and thing.env == env
