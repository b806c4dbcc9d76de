"""Endpoint: one row of the table of calls, and a request as its handler gets it.

Invariant: query and body are structs; what does not fit them is refused with the place before a handler is called.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from starlette.requests import Request

from buoy.core.ids import RunId, check_run_id
from buoy.errors import (
    BadInput,
    CorruptLog,
    InboxFull,
    Problem,
    StoreUnusable,
    TooLarge,
    Unavailable,
    Unclear,
    UnknownRun,
    WrongState,
)
from buoy.web.auth import Scope

if TYPE_CHECKING:
    from buoy import Client

_PARAMETERS_MAX = 50


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No parameters."""


class PageQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One page of a list. `cursor`: of the page before."""

    cursor: str | None = None
    limit: int = 50


class Asked(NamedTuple):
    """One request, parsed. `path`: what is in the places of the path; `data`: a body that is no struct."""

    client: Client
    path: dict[str, str]
    query: Any
    body: Any
    data: bytes = b""

    @property
    def run(self) -> RunId:
        return check_run_id(self.path["run_id"])


Answer = Callable[[Asked], Awaitable[Any]]


class Endpoint(NamedTuple):
    """One call of the API. `data_max`: it takes a body that is no struct, of so many bytes at most."""

    method: str
    path: str
    scope: Scope
    summary: str
    result: Any
    answer: Answer
    query: type[msgspec.Struct] = Nothing
    body: type[msgspec.Struct] | None = None
    errors: tuple[type[Problem], ...] = ()
    data_max: int = 0


def query_of(request: Request, kind: type[msgspec.Struct]) -> Any:
    """The query of a request as that struct."""
    given = request.query_params.multi_items()
    if len(given) > _PARAMETERS_MAX:
        raise BadInput(f"the query has more than {_PARAMETERS_MAX} parameters")
    names = [name for name, _ in given]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise BadInput(f"the query names {', '.join(twice)} more than once")
    try:
        return msgspec.convert(dict(given), kind, strict=False)
    except msgspec.ValidationError as error:
        raise BadInput(f"the query does not fit: {error}") from error


STORE_ERRORS = (Unavailable, StoreUnusable)
RUN_ERRORS = (UnknownRun, BadInput, CorruptLog, *STORE_ERRORS)
CHANGE_ERRORS = (*RUN_ERRORS, WrongState, TooLarge, InboxFull, Unclear)
