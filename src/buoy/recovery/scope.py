"""Scope: whose runs a sweep may touch.

Invariants: the env must be the very same, and no env is an env of its own, so that a test never recovers what belongs
to production; a run without a stack belongs to every stack, and a scope without one to all of them.
"""

from __future__ import annotations

import msgspec

from buoy.core.document import Document
from buoy.core.schedule import Schedule
from buoy.engine.client import Client


class Scope(msgspec.Struct, frozen=True):
    """`stack` None: all stacks. `env` None: the default env."""

    stack: str | None = None
    env: str | None = None

    @classmethod
    def of(cls, client: Client, chosen: Scope | None = None) -> Scope:
        """The scope that was chosen, else the client's own stack and env."""
        return cls(client.stack, client.env) if chosen is None else chosen

    def covers(self, document: Document | Schedule) -> bool:
        same_stack = self.stack is None or document.stack is None or document.stack == self.stack
        return same_stack and document.env == self.env
