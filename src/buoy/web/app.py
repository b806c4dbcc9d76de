"""App: the ASGI application: the table of calls, live streams, the store for runners, health and metrics.

Invariants: a body is refused as soon as it is over its limit, whatever its headers say. An unexpected error is logged
with its traceback and answered without its text.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import cast

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from buoy.config import buoy_version
from buoy.core.limits import COMMIT_BYTES_MAX
from buoy.errors import Problem
from buoy.ports.rpc import PATH, READS
from buoy.web import problems
from buoy.web.api import handler_of
from buoy.web.auth import Authenticate, Grant
from buoy.web.backend import Backend
from buoy.web.body import body_of
from buoy.web.cors import cross_origin
from buoy.web.guard import RequestGuard
from buoy.web.limits import ServerLimits
from buoy.web.metrics import CONTENT_TYPE, Metrics
from buoy.web.openapi import document
from buoy.web.problems import problem, problem_of
from buoy.web.redaction import Redaction
from buoy.web.routes import API, ENDPOINTS
from buoy.web.stream import STREAMS, StreamEndpoint
from buoy.web.wire import Wire
from buoy.wiring.server import server_clock

_LOG = logging.getLogger("buoy.web")
# A group of commits with what JSON adds to it; base64 in definitions.
STORE_BODY_BYTES_MAX = 4 * COMMIT_BYTES_MAX


class Application:
    """Builds the ASGI application for one store."""

    def __init__(
        self, backend: Backend, authenticate: Authenticate, *,
        limits: ServerLimits | None = None, redact: tuple[str, ...] = (), cors_origins: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        self._backend = backend
        self._limits = limits or ServerLimits()
        self._redaction = Redaction(redact)
        self._wire = Wire(self._redaction)
        self._clock = server_clock()
        self.metrics = Metrics()
        self.guard = RequestGuard(authenticate, self._limits, self._clock, self.metrics)
        self._streams: dict[str, int] = {}
        self._cors = cross_origin(cors_origins)

    def build(self) -> Starlette:
        guarded = self.guard.guarded
        api = [
            Route(
                API + each.path,
                guarded(each.path, each.scope, handler_of(each, self._backend, self._redaction)),
                methods=[each.method],
            )
            for each in ENDPOINTS
        ]
        streams = [
            Route(API + each.path, guarded(each.path, "read", partial(self._stream, each)), methods=["GET"])
            for each in STREAMS
        ]
        routes = [
            *api,
            *streams,
            Route(f"{API}/openapi.json", self._openapi, methods=["GET"]),
            Route("/healthz", self._healthy, methods=["GET"]),
            Route("/readyz", self._ready, methods=["GET"]),
            Route("/metrics", guarded("/metrics", "read", self._metrics), methods=["GET"]),
            Route(PATH + "{name}", guarded("store", "read", self._store_call), methods=["POST"]),
        ]
        handlers = {HTTPException: _refused, Exception: _failed}
        return Starlette(routes=routes, lifespan=self._lifespan, exception_handlers=handlers, middleware=self._cors)

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        await self._backend.opened()
        try:
            yield
        finally:
            await self._backend.close()

    async def _store_call(self, request: Request, grant: Grant) -> Response:
        name = request.path_params["name"]
        # The store shows every value: who may only look gets none of it from a server that hides some.
        if not grant.allows("runner") and (name not in READS or self._redaction.active):
            return problem(problems.FORBIDDEN, "this token has no scope `runner`")
        opened = await self._backend.opened()
        body = await body_of(request, STORE_BODY_BYTES_MAX)
        began = self._clock.monotonic()
        status, answer = await opened.api.answer(name, body, grant.name)
        if name == "commit":
            self.metrics.commit_seconds.observe(self._clock.monotonic() - began)
        return Response(answer, status_code=status, media_type="application/json")

    async def _metrics(self, _: Request, __: Grant) -> Response:
        return Response(await self.metrics.text(await self._backend.opened()), media_type=CONTENT_TYPE)

    async def _stream(self, endpoint: StreamEndpoint, request: Request, grant: Grant) -> Response:
        opened, most = await self._backend.opened(), self._limits
        if opened.hub.streams >= most.streams:
            return problem(problems.TOO_MANY_STREAMS, f"{most.streams:,} streams are open")
        if self._streams.get(grant.name, 0) >= most.streams_per_caller:
            return problem(problems.TOO_MANY_STREAMS, f"this caller has {most.streams_per_caller:,} streams open")
        stream = await endpoint.open(self._backend, request, grant, self._wire)
        stream.dropped = self.metrics.dropped.inc
        stream.counted = (self._streams, grant.name)
        # An ASGI application of its own, as every response is.
        return cast(Response, stream)

    async def _openapi(self, request: Request) -> Response:
        found = document(buoy_version(), request.scope.get("root_path", ""))
        return Response(msgspec.json.encode(found), media_type="application/json")

    async def _healthy(self, _: Request) -> Response:
        """The process answers."""
        return Response(b'{"status":"ok"}', media_type="application/json")

    async def _ready(self, _: Request) -> Response:
        """The store answers."""
        try:
            opened = await self._backend.opened()
            await opened.store.now()
        except Problem as error:
            return problem_of(error)
        return Response(b'{"status":"ready"}', media_type="application/json")


async def _refused(_: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    kinds = {404: problems.NOT_FOUND, 405: problems.WRONG_METHOD}
    kind = kinds.get(status, problems.INTERNAL)
    refused = problem(kind, error.detail if isinstance(error, HTTPException) else "")
    refused.headers.update(getattr(error, "headers", None) or {})  # `Allow`
    return refused


async def _failed(request: Request, error: Exception) -> Response:
    _LOG.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return problem_of(error)
