"""Guard: what every request passes before its handler: headers, token, scope, rate. What it raises becomes an answer.

Invariants: a request that is refused has had no effect, and its body was not read. Each answer is counted by its route
and logged without its query, its headers and its body, since those may hold secrets.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from buoy.errors import Problem
from buoy.ports.host import Clock
from buoy.web import problems
from buoy.web.auth import Authenticate, Grant
from buoy.web.body import TooMuch, TooSlow
from buoy.web.limits import RateLimit, ServerLimits
from buoy.web.metrics import Metrics
from buoy.web.problems import problem, problem_of

_LOG = logging.getLogger("buoy.web")
_SERVER_ERROR = 500

Handler = Callable[[Request, Grant], Awaitable[Response]]


class RequestGuard:
    """The checks of one server."""

    def __init__(self, authenticate: Authenticate, limits: ServerLimits, clock: Clock, metrics: Metrics) -> None:
        self.authenticate = authenticate
        self._limits = limits
        self._rates = RateLimit(limits, clock)
        self._clock = clock
        self._metrics = metrics

    def guarded(self, route: str, scope: str, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        """The handler, for callers with that scope."""

        async def call(request: Request) -> Response:
            began = self._clock.monotonic()
            caller = ""
            try:
                grant = await self._checked(request, scope)
                if isinstance(grant, Response):
                    response = grant
                else:
                    caller = grant.name
                    response = await handler(request, grant)
            except TooMuch as error:
                response = problem(problems.BODY_TOO_LARGE, str(error))
            except TooSlow as error:
                response = problem(problems.BODY_TOO_SLOW, str(error))
            except Problem as error:
                response = problem_of(error)
            except ClientDisconnect:
                response = Response(status_code=499)
            self._note(request, route, caller, response, self._clock.monotonic() - began)
            return response

        return call

    async def _checked(self, request: Request, scope: str) -> Grant | Response:
        """The caller's grant, or a refusal."""
        size = sum(len(name) + len(value) for name, value in request.headers.raw)
        if size > self._limits.header_bytes:
            return problem(
                problems.HEADERS_TOO_LARGE, f"the headers have more than {self._limits.header_bytes:,} bytes"
            )
        grant = await self.authenticate(request)
        # Guessers share a bucket by address, so that they cannot take the one of a caller with a token.
        address = request.client.host if request.client is not None else "local"
        wait_s = self._rates.wait_s(f"address {address}" if grant is None else f"token {grant.name}")
        if wait_s > 0.0:
            refused = problem(problems.RATE_LIMITED, "this caller asks too often")
            refused.headers["Retry-After"] = str(math.ceil(wait_s))
            return refused
        if grant is None:
            return problem(problems.UNAUTHENTICATED, "the request has no token that this server knows")
        if not grant.allows(scope):
            return problem(problems.FORBIDDEN, f"this token has no scope `{scope}`")
        return grant

    def _note(self, request: Request, route: str, caller: str, response: Response, took_s: float) -> None:
        status = getattr(response, "status_code", 200)
        self._metrics.requests.labels(request.method, route, str(status)).inc()
        self._metrics.request_seconds.labels(route).observe(took_s)
        level = logging.WARNING if status >= _SERVER_ERROR else logging.DEBUG
        if _LOG.isEnabledFor(level):
            facts = {
                "method": request.method,
                "route": route,
                "status": status,
                "actor": caller,
                "run_id": request.path_params.get("run_id"),
                "took_s": round(took_s, 6),
            }
            _LOG.log(level, "%s %s: %d", request.method, route, status, extra=facts)
