"""Body: the body of a request, read no further than its limit, whatever its headers say."""

from __future__ import annotations

from starlette.requests import Request


class TooMuch(Exception):
    """A body is over its limit."""


async def body_of(request: Request, limit: int) -> bytes:
    """The body. Raises `TooMuch` as soon as it is over the limit."""
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise TooMuch(f"the body has more than {limit:,} bytes")
        parts.append(part)
    return b"".join(parts)
