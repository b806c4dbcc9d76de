"""Streams: server-sent events of one run, or of all runs.

Invariants: the id of an event is its number in the log. So a client that comes back with `Last-Event-ID`, to this
server or another one, misses nothing and gets nothing twice. The server drops a slow reader after a while; it can come
back. When the server stops, a stream ends with a comment, and its last id stands.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from buoy.core.ids import RunId, check_run_id
from buoy.core.log import codec
from buoy.errors import BadInput
from buoy.operations.control.stream_start import WatchedRun, watch_run
from buoy.operations.inspect.runs import NOT_ENDED, RunFilter, list_runs
from buoy.ports.records import RunRecord
from buoy.web.auth import Grant
from buoy.web.backend import Backend, OpenedServer
from buoy.web.endpoint import query_of
from buoy.web.tail import Frame, Take
from buoy.web.wire import CHUNKS, STILL_THERE, ChunkWriter, Wire, message

if TYPE_CHECKING:
    from buoy import Client

RETRY_MS = 2_000
# A reader that takes nothing for so long is dropped.
SEND_MAX_S = 30.0
PART_BYTES = 256 * 1024
_SNAPSHOT_RUNS = 500
# Runs over one connection: the id of each message names all of them.
JOINED_MAX = 20
SERVER_STOPS = b": the server stops\n\n"
# Part of the first message: some clients hand on a block without data as an event of its own.
_RETRY = b"retry: %d\n" % RETRY_MS
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


class EventStream:
    """An ASGI response that writes chunks until they end, the client leaves, or it takes too long to read."""

    def __init__(self, chunks: AsyncGenerator[bytes, None]) -> None:
        self._chunks = chunks
        # Called when a slow reader is dropped.
        self.dropped: Callable[[], None] = lambda: None
        # Open streams by caller, and the caller.
        self.counted: tuple[dict[str, int], str] = ({}, "")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        counts, caller = self.counted
        counts[caller] = counts.get(caller, 0) + 1
        left = asyncio.ensure_future(_left(receive))
        writer = asyncio.ensure_future(self._write(send))
        try:
            await asyncio.wait([left, writer], return_when=asyncio.FIRST_COMPLETED)
            if writer.done():
                writer.result()
        except _TooSlow:
            self.dropped()  # it comes back with the number of its last event
        except OSError:
            return
        finally:
            counts[caller] -= 1
            if not counts[caller]:
                del counts[caller]
            for each in (left, writer):
                each.cancel()
            await asyncio.wait([left, writer])
            await self._chunks.aclose()

    async def _write(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        async for chunk in self._chunks:
            # In parts: the server waits for the reader before a part, so only one part is in memory for a slow one.
            for start in range(0, len(chunk), PART_BYTES):
                part = chunk[start : start + PART_BYTES]
                await _send_part(send, {"type": "http.response.body", "body": part, "more_body": True})
        await _send_part(send, {"type": "http.response.body", "body": b""})


class _TooSlow(Exception):
    """The reader took nothing for too long."""


async def _send_part(send: Send, part: Message) -> None:
    try:
        async with asyncio.timeout(SEND_MAX_S):
            await send(part)
    except TimeoutError as error:
        raise _TooSlow from error


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class Source(NamedTuple):
    """What a stream reads from, and for which caller."""

    opened: OpenedServer
    client: Client
    wire: Wire
    may_recover: bool
    # The connection, if it takes chunks at any time.
    chunks: ChunkWriter | None

    @property
    def take(self) -> Take | None:
        """Writes to the reader while its task sleeps."""
        wire, chunks = self.wire, self.chunks
        return None if chunks is None else lambda frames: chunks.write_chunk(wire.chunk(frames))

    async def watched(self, run_id: str) -> WatchedRun:
        """How a run is. For a caller that may operate, a server that sweeps also brings back a run without a runner."""
        recover = self.may_recover and self.opened.served.sweeper is not None
        return await watch_run(self.client, check_run_id(run_id), recover=recover)

    async def snapshot(self) -> bytes:
        page = await list_runs(self.client, RunFilter(statuses=NOT_ENDED), limit=_SNAPSHOT_RUNS)
        return message("snapshot", self.wire.redaction.apply(codec.encode_plain(page.listed())))

    def summaries(self, records: list[RunRecord]) -> bytes:
        data = [self.wire.redaction.apply(codec.encode_plain(each.document)) for each in records]
        return b"".join(message("run", each) for each in data)


def after_of(text: str) -> int:
    """The number after which a stream begins."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 15):
        raise BadInput(f"Last-Event-ID must be the number of an event: {text[:40]!r}")
    return int(text)


async def _source(backend: Backend, request: Request, grant: Grant, wire: Wire) -> Source:
    opened = await backend.opened()
    chunks = request.scope.get("extensions", {}).get(CHUNKS)
    return Source(opened, opened.served.client(grant.name), wire, grant.allows("operate"), chunks)


class RunStreamQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`after`: as `Last-Event-ID`, for a first request. `lastEventId`: the same, as EventSource polyfills send it."""

    after: str | None = None
    last_event_id: str | None = msgspec.field(default=None, name="lastEventId")


class AllStreamQuery(RunStreamQuery, frozen=True, forbid_unknown_fields=True):
    """`runs`: ids with commas, to follow their logs. `all`: and the summaries of all runs.

    `after`: as `Last-Event-ID`, for a first request. `lastEventId`: the same, as EventSource polyfills send it.
    """

    runs: str | None = None
    all: bool = False


def last_id(request: Request, query: RunStreamQuery) -> str:
    """The number in the header, else in the query. A client that comes back keeps the `after` of its first request."""
    return request.headers.get("last-event-id") or query.last_event_id or query.after or ""


async def run_stream(backend: Backend, request: Request, grant: Grant, wire: Wire) -> EventStream:
    """The log of one run from a number on, and then as it grows. Ends with the run."""
    query: RunStreamQuery = query_of(request, RunStreamQuery)
    after = after_of(last_id(request, query) or "0")
    source = await _source(backend, request, grant, wire)
    return EventStream(_run_chunks(source, await source.watched(request.path_params["run_id"]), after))


async def _run_chunks(source: Source, found: WatchedRun, after: int) -> AsyncGenerator[bytes, None]:
    yield _RETRY + message("health", msgspec.json.encode(found))
    if found.ended and after >= found.head_seq:
        return
    hub = source.opened.hub
    async for frames in hub.follow(check_run_id(found.run_id), after, source.take):
        yield source.wire.text(frames) if frames else STILL_THERE
        if any(frame.ends for frame in frames):
            return
    if hub.closing.is_set():
        yield SERVER_STOPS


async def all_stream(backend: Backend, request: Request, grant: Grant, wire: Wire) -> EventStream:
    """Summaries of all runs: those under way first, then each run that moves, its latest state only.

    With `runs` in the query: the logs of these runs over one connection, and the summaries if `all` is there, too.
    """
    query: AllStreamQuery = query_of(request, AllStreamQuery)
    source = await _source(backend, request, grant, wire)
    if query.runs is not None:
        return EventStream(await joined(source, query, last_id(request, query)))
    return EventStream(_all_chunks(source, await source.snapshot()))


async def _all_chunks(source: Source, snapshot: bytes) -> AsyncGenerator[bytes, None]:
    yield _RETRY + snapshot
    async for records in source.opened.hub.summaries():
        yield source.summaries(records) if records else STILL_THERE
    yield SERVER_STOPS


async def joined(source: Source, query: AllStreamQuery, after: str) -> AsyncGenerator[bytes, None]:
    """Several runs over one connection. The id of each message names the place in every run."""
    wanted = [check_run_id(each) for each in (query.runs or "").split(",") if each]
    if not 1 <= len(wanted) <= JOINED_MAX or len(set(wanted)) != len(wanted):
        raise BadInput(f"runs must name 1 to {JOINED_MAX} different runs")
    places = dict.fromkeys(wanted, 0)
    for part in after.split(","):
        run_id, mark, number = part.rpartition(":")
        if part and (not mark or run_id not in places):
            raise BadInput(f"Last-Event-ID must name numbers of these runs, as 'run:5,other:7': {part[:60]!r}")
        if part:
            places[check_run_id(run_id)] = after_of(number)
    found = {run_id: await source.watched(run_id) for run_id in wanted}
    return _joined_chunks(source, found, places, everything=query.all)


async def _joined_chunks(
    source: Source, found: dict[RunId, WatchedRun], places: dict[RunId, int], *, everything: bool
) -> AsyncGenerator[bytes, None]:
    # One place: each run waits until the reader has taken what came before, so that nothing piles up.
    queue: asyncio.Queue[tuple[RunId | None, list[Frame], bytes]] = asyncio.Queue(1)

    async def run_part(run_id: RunId) -> None:
        async for frames in source.opened.hub.follow(run_id, places[run_id]):
            await queue.put((run_id, frames, b"" if frames else STILL_THERE))
            if any(frame.ends for frame in frames):
                return

    async def all_part() -> None:
        await queue.put((None, [], await source.snapshot()))
        async for records in source.opened.hub.summaries():
            await queue.put((None, [], source.summaries(records) if records else STILL_THERE))

    yield _RETRY + b"".join(message("health", msgspec.json.encode(each)) for each in found.values())
    live = [each for each in found if not (found[each].ended and places[each] >= found[each].head_seq)]
    parts = [run_part(each) for each in live] + ([all_part()] if everything else [])
    tasks = [asyncio.create_task(part) for part in parts]
    done = asyncio.gather(*tasks)
    taken = asyncio.ensure_future(queue.get())
    try:
        while not (done.done() and queue.empty() and not taken.done()):
            waited: list[asyncio.Future[Any]] = [taken, done]
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if not taken.done() and queue.empty():
                break
            run_id, frames, plain = await taken
            taken = asyncio.ensure_future(queue.get())
            yield plain + b"".join(_placed(source, places, run_id, frame) for frame in frames if run_id is not None)
        if done.done():
            done.result()  # what a part raised ends the stream, and is logged
        if source.opened.hub.closing.is_set():
            yield SERVER_STOPS
    finally:
        parts_left: list[asyncio.Future[Any]] = [*tasks, done, taken]
        for each in parts_left:
            each.cancel()
        await asyncio.gather(*parts_left, return_exceptions=True)


def _placed(source: Source, places: dict[RunId, int], run_id: RunId, frame: Frame) -> bytes:
    places[run_id] = frame.seq or places[run_id]
    place = ",".join(f"{each}:{number}" for each, number in places.items())
    data = b'{"run_id":%s,"event":%s}' % (msgspec.json.encode(run_id), source.wire.redaction.apply(frame.data))
    return b"id: %s\n" % place.encode() + message(frame.name, data)


class StreamEndpoint(NamedTuple):
    """One live stream of the API. `last_id`: the schema of its `Last-Event-ID`."""

    path: str
    name: str
    summary: str
    query: type[msgspec.Struct]
    last_id: dict[str, Any]
    open: Callable[[Backend, Request, Grant, Wire], Awaitable[EventStream]]


STREAMS = (
    StreamEndpoint(
        "/runs/{run_id}/stream", "stream_run", "Follow one run.", RunStreamQuery,
        {"type": "string", "pattern": "^[0-9]{1,15}$"}, run_stream,
    ),
    StreamEndpoint(
        "/stream", "stream_all", "Follow all runs, or several.", AllStreamQuery, {"type": "string"}, all_stream
    ),
)  # fmt: skip
