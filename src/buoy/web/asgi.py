"""`buoy.asgi`: the server as an application to mount into another one.

Invariant: the server's packages are loaded when it is called, so that `import buoy` needs none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from buoy.core.extras import INSTALL_SERVER
from buoy.errors import BadInput

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from buoy.web.auth import Authenticate


def asgi(
    store: str | None = None,
    *,
    token: str | None = None,
    authenticate: Authenticate | None = None,
    sweeps: bool = True,
    redact: tuple[str, ...] = (),
) -> ASGIApp:
    """The API, live streams and the store of that URL as an ASGI application, below any base path.

    It opens the store at the first request, since a mounted application gets no lifespan of its own. Name a `token`
    that callers must send (those of `buoy token` work as well), or bring a scheme of your own: `authenticate` maps a
    request to a grant (`buoy.web.auth.grant_of`), or to None.
    """
    try:
        from buoy.web.app import Application
        from buoy.web.auth import KnownTokens, grant_of
        from buoy.web.backend import Backend
        from buoy.web.store_tokens import StoreTokens
        from buoy.wiring.server import open_served
    except ModuleNotFoundError as error:
        raise BadInput(f"buoy.asgi needs the server's packages; install them with: {INSTALL_SERVER}") from error
    if (token is None) == (authenticate is None):
        raise BadInput("buoy.asgi needs a way to know its callers: name either token= or authenticate=")
    tokens = KnownTokens()
    if token is not None:
        tokens.add(token, grant_of("owner", ["admin"]))
    backend = Backend(lambda: open_served(store), sweeps=sweeps)
    return Application(backend, authenticate or StoreTokens(backend, tokens), redact=redact).build()
