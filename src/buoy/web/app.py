"""App: the ASGI application. Every request is authenticated and bounded here.

Invariants: a body is refused as soon as it is over its limit, whatever its headers say. An unexpected error is logged
with its traceback and answered without its text.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import cast

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from buoy.config import buoy_version
from buoy.core.limits import COMMIT_BYTES_MAX
from buoy.errors import Problem
from buoy.ports.rpc import PATH
from buoy.web import problems
from buoy.web.api import handler_of
from buoy.web.auth import Authenticate, Grant
from buoy.web.backend import Backend
from buoy.web.body import TooMuch, body_of
from buoy.web.openapi import document
from buoy.web.problems import problem, problem_of
from buoy.web.routes import API, ENDPOINTS
from buoy.web.stream import EventStream, all_stream, run_stream

_LOG = logging.getLogger("buoy.web")
# A group of commits with what JSON adds to it; base64 in definitions.
STORE_BODY_BYTES_MAX = 4 * COMMIT_BYTES_MAX
STREAMS_MAX = 10_000

Handler = Callable[[Request, Grant], Awaitable[Response]]


class Application:
    """Builds the ASGI application for one store."""

    def __init__(self, backend: Backend, authenticate: Authenticate) -> None:
        self._backend = backend
        self.authenticate = authenticate

    def build(self) -> Starlette:
        api = [
            Route(API + each.path, self.guarded(each.scope, handler_of(each, self._backend)), methods=[each.method])
            for each in ENDPOINTS
        ]
        routes = [
            *api,
            Route(f"{API}/runs/{{run_id}}/stream", self.guarded("read", self._run_stream), methods=["GET"]),
            Route(f"{API}/stream", self.guarded("read", self._all_stream), methods=["GET"]),
            Route(f"{API}/openapi.json", self._openapi, methods=["GET"]),
            Route("/healthz", self._healthy, methods=["GET"]),
            Route("/readyz", self._ready, methods=["GET"]),
            Route(PATH + "{name}", self.guarded("runner", self._store_call), methods=["POST"]),
        ]
        handlers = {HTTPException: _refused, Exception: _failed}
        return Starlette(routes=routes, lifespan=self._lifespan, exception_handlers=handlers)

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        await self._backend.opened()
        try:
            yield
        finally:
            await self._backend.close()

    def guarded(self, scope: str, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        """The handler, for callers with that scope. What it raises becomes an answer."""

        async def call(request: Request) -> Response:
            try:
                grant = await self.authenticate(request)
                if grant is None:
                    return problem(problems.UNAUTHENTICATED, "the request has no token that this server knows")
                if not grant.allows(scope):
                    return problem(problems.FORBIDDEN, f"this token has no scope `{scope}`")
                return await handler(request, grant)
            except TooMuch as error:
                return problem(problems.BODY_TOO_LARGE, str(error))
            except Problem as error:
                return problem_of(error)
            except ClientDisconnect:
                return Response(status_code=499)

        return call

    async def _store_call(self, request: Request, _: Grant) -> Response:
        opened = await self._backend.opened()
        body = await body_of(request, STORE_BODY_BYTES_MAX)
        status, answer = await opened.api.answer(request.path_params["name"], body)
        return Response(answer, status_code=status, media_type="application/json")

    async def _run_stream(self, request: Request, grant: Grant) -> Response:
        return await self._stream(run_stream, request, grant)

    async def _all_stream(self, request: Request, grant: Grant) -> Response:
        return await self._stream(all_stream, request, grant)

    async def _stream(
        self, make: Callable[[Backend, Request, Grant], Awaitable[EventStream]], request: Request, grant: Grant
    ) -> Response:
        opened = await self._backend.opened()
        if opened.hub.streams >= STREAMS_MAX:
            return problem(problems.TOO_MANY_STREAMS, f"{STREAMS_MAX:,} streams are open")
        # An ASGI application of its own, as every response is.
        return cast(Response, await make(self._backend, request, grant))

    async def _openapi(self, _: Request) -> Response:
        return Response(msgspec.json.encode(document(buoy_version())), media_type="application/json")

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
    return problem(kind, error.detail if isinstance(error, HTTPException) else "")


async def _failed(request: Request, error: Exception) -> Response:
    _LOG.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return problem_of(error)
