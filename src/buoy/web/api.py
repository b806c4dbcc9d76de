"""API: serves the table of routes. Parses a request into structs, asks the operation, encodes its answer.

Invariants: what does not fit its struct is refused with the place before an operation is asked. Answers are the structs
of operations, so that the API and `--json` cannot disagree.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from buoy.core.limits import PAYLOAD_BYTES_MAX
from buoy.core.log import codec
from buoy.errors import BadInput
from buoy.web.auth import Grant
from buoy.web.backend import Backend
from buoy.web.body import body_of
from buoy.web.endpoint import Asked, Endpoint, query_of
from buoy.web.redaction import Redaction

# A payload with what JSON and its fields add to it.
BODY_BYTES_MAX = PAYLOAD_BYTES_MAX + 64 * 1024


def handler_of(
    endpoint: Endpoint, backend: Backend, redaction: Redaction
) -> Callable[[Request, Grant], Awaitable[Response]]:
    """Serves one row of the table."""

    async def handle(request: Request, grant: Grant) -> Response:
        opened = await backend.opened()
        asked = Asked(
            client=opened.served.client(grant.name),
            path=dict(request.path_params),
            query=query_of(request, endpoint.query),
            body=None if endpoint.body is None else await _body(request, endpoint.body),
            data=await body_of(request, endpoint.data_max) if endpoint.data_max else b"",
        )
        answer = codec.encode_plain(await endpoint.answer(asked))
        return Response(redaction.apply(answer), media_type="application/json")

    return handle


async def _body(request: Request, kind: type[msgspec.Struct]) -> Any:
    data = await body_of(request, BODY_BYTES_MAX)
    if codec.nested_too_deeply(data):
        raise BadInput("the body is nested too deeply; flatten it")
    try:
        return msgspec.json.decode(data or b"{}", type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"the body does not fit: {error}") from error
