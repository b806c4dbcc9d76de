"""App: the ASGI application. Routes to the store API now; every request is authenticated and bounded here.

Invariants: a body is refused as soon as it is over its limit, whatever its headers say. An unexpected error is logged
with its traceback and answered without its text.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from buoy.core.limits import COMMIT_BYTES_MAX
from buoy.errors import Problem
from buoy.ports.rpc import PATH
from buoy.web import problems
from buoy.web.auth import Authenticate, Grant
from buoy.web.backend import Backend
from buoy.web.problems import problem, problem_of

_LOG = logging.getLogger("buoy.web")
# A group of commits with what JSON adds to it; base64 in definitions.
STORE_BODY_BYTES_MAX = 4 * COMMIT_BYTES_MAX

Handler = Callable[[Request, Grant], Awaitable[Response]]


class TooMuch(Exception):
    """A body is over its limit."""


async def body_of(request: Request, limit: int) -> bytes:
    """The body, read no further than its limit."""
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise TooMuch(f"the body has more than {limit:,} bytes")
        parts.append(part)
    return b"".join(parts)


class Application:
    """Builds the ASGI application for one store."""

    def __init__(self, backend: Backend, authenticate: Authenticate) -> None:
        self._backend = backend
        self._authenticate = authenticate

    def build(self) -> Starlette:
        routes = [
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
            grant = await self._authenticate(request)
            if grant is None:
                return problem(problems.UNAUTHENTICATED, "the request has no token that this server knows")
            if not grant.allows(scope):
                return problem(problems.FORBIDDEN, f"this token has no scope `{scope}`")
            try:
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
