"""Streams: server-sent events of one run, or of all runs.

Invariants: the id of an event is its number in the log. So a client that comes back with `Last-Event-ID`, to this
server or another one, misses nothing and gets nothing twice. The server drops a slow reader after a while; it can come
back. When the server stops, a stream ends with a comment, and its last id stands.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from buoy.core.ids import check_run_id
from buoy.core.log import codec
from buoy.errors import BadInput
from buoy.operations.inspect.run_detail import inspect_run
from buoy.operations.inspect.runs import NOT_ENDED, RunFilter, list_runs
from buoy.web.auth import Grant
from buoy.web.backend import Backend, OpenedServer

RETRY_MS = 2_000
# A reader that takes nothing for so long is dropped.
SEND_MAX_S = 30.0
_SNAPSHOT_RUNS = 500
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


class StreamHealth(msgspec.Struct, frozen=True):
    """How a run is when its stream opens: whether anything executes it, and why not."""

    run_id: str
    status: str
    health: str
    reasons: tuple[str, ...]


class EventStream:
    """An ASGI response that writes chunks until they end, the client leaves, or it takes too long to read."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        left = asyncio.ensure_future(_left(receive))
        try:
            async for chunk in self._chunks:
                if left.done():
                    return
                async with asyncio.timeout(SEND_MAX_S):
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        except (TimeoutError, OSError):
            return  # it comes back with the number of its last event
        finally:
            left.cancel()


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def message(name: str, data: bytes, number: int | None = None) -> bytes:
    """One server-sent event. JSON has no line breaks of its own."""
    head = b"" if number is None else b"id: %d\n" % number
    return head + b"event: %s\ndata: %s\n\n" % (name.encode(), data)


def after_of(request: Request) -> int:
    """The number after which the stream begins: of the header, else of the query."""
    text = request.headers.get("last-event-id") or request.query_params.get("after") or "0"
    if not (text.isascii() and text.isdecimal() and len(text) <= 15):
        raise BadInput(f"Last-Event-ID must be the number of an event: {text[:40]!r}")
    return int(text)


async def run_stream(backend: Backend, request: Request, grant: Grant) -> EventStream:
    """The log of one run from a number on, and then as it grows. Ends with the run."""
    opened = await backend.opened()
    after = after_of(request)
    client = opened.served.client(grant.name)
    detail = (await inspect_run(client, check_run_id(request.path_params["run_id"]))).detail
    doc = detail.document
    health = StreamHealth(doc.run_id, doc.status, detail.health, detail.reasons)
    return EventStream(_run_chunks(opened, health, after, head=doc.head_seq if doc.ended else None))


async def _run_chunks(opened: OpenedServer, health: StreamHealth, after: int, head: int | None) -> AsyncIterator[bytes]:
    yield b"retry: %d\n\n" % RETRY_MS + message("health", msgspec.json.encode(health))
    if head is not None and after >= head:
        return
    async for frames in opened.hub.follow(check_run_id(health.run_id), after):
        if not frames:
            yield b": still there\n\n"
            continue
        yield b"".join(message(frame.name, frame.data, frame.seq) for frame in frames)
        if any(frame.ends for frame in frames):
            return
    yield b": the server stops\n\n"


async def all_stream(backend: Backend, request: Request, grant: Grant) -> EventStream:
    """Summaries of all runs: those under way first, then each run that moves, its latest state only."""
    opened = await backend.opened()
    client = opened.served.client(grant.name)
    page = await list_runs(client, RunFilter(statuses=NOT_ENDED), limit=_SNAPSHOT_RUNS)
    return EventStream(_all_chunks(opened, codec.encode_plain(page.listed())))


async def _all_chunks(opened: OpenedServer, snapshot: bytes) -> AsyncIterator[bytes]:
    yield b"retry: %d\n\n" % RETRY_MS + message("snapshot", snapshot)
    async for records in opened.hub.summaries():
        if not records:
            yield b": still there\n\n"
            continue
        yield b"".join(message("run", codec.encode_plain(record.document)) for record in records)
    yield b": the server stops\n\n"
