"""Body: the body of a request, read no further than its limit and no longer than its time, whatever its headers say."""

from __future__ import annotations

import asyncio

from starlette.requests import Request

# A body that does not arrive in this time is given up: a caller that sends a byte a second must not hold memory.
BODY_MAX_S = 60.0


class TooMuch(Exception):
    """A body is over its limit."""


class TooSlow(Exception):
    """A body did not arrive in time."""


async def body_of(request: Request, limit: int, within_s: float = BODY_MAX_S) -> bytes:
    """The body. Raises `TooMuch` as soon as it is over the limit, `TooSlow` when its time is over."""
    parts: list[bytes] = []
    size = 0
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > limit:
        raise TooMuch(f"the body has more than {limit:,} bytes")
    try:
        async with asyncio.timeout(within_s):
            async for part in request.stream():
                size += len(part)
                if size > limit:
                    raise TooMuch(f"the body has more than {limit:,} bytes")
                parts.append(part)
    except TimeoutError as error:
        raise TooSlow(f"the body did not arrive within {within_s:g} s") from error
    return b"".join(parts)
