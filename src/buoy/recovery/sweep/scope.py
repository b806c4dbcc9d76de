"""Scope: whose runs a sweep may touch, by the rules of `core.scope`."""

from __future__ import annotations

import msgspec

from buoy.core.log.document import Document
from buoy.core.schedule.schedule import Schedule
from buoy.core.scope import in_scope
from buoy.engine.client.client import Client


class Scope(msgspec.Struct, frozen=True):
    """`stack` None: all stacks. `env` None: the default env."""

    stack: str | None = None
    env: str | None = None

    @classmethod
    def of(cls, client: Client, chosen: Scope | None = None) -> Scope:
        """The scope that was chosen, else the client's own stack and env."""
        return cls(client.stack, client.env) if chosen is None else chosen

    def covers(self, document: Document | Schedule) -> bool:
        return in_scope(document, self.stack, self.env)
