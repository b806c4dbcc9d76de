"""CORS: which pages of other origins may call the API from a browser. None, unless a server names them.

Invariants: an origin is allowed by an exact match, never by a pattern. Answers allow no credentials, so a browser sends
no cookies; a page must have a token of its own and send it as `Authorization`.
"""

from __future__ import annotations

import re

from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware

from buoy.errors import BadInput

# As browsers send it: scheme, host in lower case, port if it is not the default one.
_ORIGIN = re.compile(r"https?://([a-z0-9.-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")
# How long a browser may keep the answer to a preflight.
_KEPT_S = 600


def cross_origin(origins: tuple[str, ...]) -> list[Middleware]:
    """What the application needs for these origins. Nothing for none: then no answer has a CORS header."""
    for each in origins:
        if not _ORIGIN.fullmatch(each):
            raise BadInput(
                f"invalid origin {each[:100]!r}; write it as browsers send it: https://app.example.com or "
                "http://localhost:3000, without a path. A pattern or * would let any page in"
            )
    if not origins:
        return []
    allowed = Middleware(
        CORSMiddleware,
        allow_origins=origins,
        allow_methods=("GET", "POST", "PUT", "DELETE"),
        allow_headers=("Authorization", "Content-Type", "Last-Event-ID"),
        expose_headers=("Retry-After",),
        max_age=_KEPT_S,
    )
    return [allowed]
