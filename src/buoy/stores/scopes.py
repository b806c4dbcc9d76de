"""Scopes of queries: whether a run is of the stack and env that a query asks for."""

from __future__ import annotations

from msgspec import UNSET

from buoy.core.log.document import Document
from buoy.core.scope import in_scope, in_stack
from buoy.ports.records import RunQuery


def fits_scope(document: Document, query: RunQuery) -> bool:
    if query.env is UNSET:
        return in_stack(document, query.stack)
    return in_scope(document, query.stack, query.env)
