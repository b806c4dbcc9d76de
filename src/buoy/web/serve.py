"""Serve: the server as a process of its own, on uvicorn.

Invariants: beyond loopback a server needs TLS, or a proxy that has it: tokens would travel in the clear. A server
without a token listens on a unix socket only. SIGTERM ends streams, lets requests end, and closes the store.
"""

from __future__ import annotations

import asyncio
import importlib
import ipaddress
import signal
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import cast

import msgspec
import uvicorn

from buoy.config import token_file
from buoy.errors import BadInput, StoreUnusable
from buoy.operations.workers.worker_pool import PoolEnd, WorkerPool
from buoy.web.app import Application
from buoy.web.auth import Authenticate, KnownTokens, allow_anyone, grant_of, read_or_make_token
from buoy.web.backend import Backend
from buoy.web.cors import cross_origin
from buoy.web.limits import ServerLimits
from buoy.web.log_lines import log_json, log_plain
from buoy.web.protocol import ServerConnection
from buoy.web.store_tokens import StoreTokens
from buoy.wiring.server import open_served
from buoy.wiring.worker_pool import spec_worker

# Longer than clients keep a connection that is idle.
KEEP_ALIVE_S = 75
GRACE_S = 10
_EVERY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104 - to be recognised
_HEADERS_MAX_BYTES = 64 * 1024


class ServeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a server listens, and which callers it accepts."""

    store: str | None = None
    host: str = "127.0.0.1"
    port: int = 8642
    unix_socket: Path | None = None
    token_file: Path | None = None
    no_token: bool = False
    # The user's own scheme, as `module:function`.
    auth: str | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    behind_proxy: bool = False
    sweeps: bool = True
    # Whether a worker process beside the server drives runs of specs, batch runs too.
    specs: bool = False
    limits: ServerLimits = ServerLimits()
    # Patterns of keys whose values the API hides.
    redact: tuple[str, ...] = ()
    log_json: bool = False
    # Origins whose pages may call the API from a browser.
    cors_origins: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """What names this server among those of one user."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return str(self.unix_socket) if self.unix_socket else f"{host}:{self.port}"

    @property
    def local_place(self) -> str:
        """How clients of this machine name it: under its token they look for loopback."""
        return f"127.0.0.1:{self.port}" if not self.unix_socket and self.host in _EVERY_ADDRESS else self.place

    @property
    def url(self) -> str:
        if self.unix_socket:
            return f"http+unix://{self.unix_socket}"
        return f"{'https' if self.tls_cert else 'http'}://{self.place}"


def check(options: ServeOptions) -> None:
    """Refuses what would let strangers in."""
    if options.no_token and options.unix_socket is None:
        raise BadInput("--no-token needs --socket: on a port every user of this machine could change your runs")
    if (options.tls_cert is None) != (options.tls_key is None):
        raise BadInput("--tls-cert and --tls-key go together; name both")
    cross_origin(options.cors_origins)
    protected = options.tls_cert is not None or options.behind_proxy or options.unix_socket is not None
    if not protected and not _is_loopback(options.host):
        raise BadInput(
            f"--host {options.host} is beyond loopback, where tokens would travel in the clear; "
            "add --tls-cert and --tls-key, or --behind-proxy if a proxy in front has TLS"
        )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Server:
    """One server process. `tell` gets the lines for the person who started it."""

    def __init__(self, options: ServeOptions, tell: Callable[[str], None]) -> None:
        check(options)
        self._options = options
        self._print = tell

    def run(self) -> None:
        """Serves until a signal ends it."""
        (log_json if self._options.log_json else log_plain)()
        listening = listen(self._options)
        if not self._options.port and self._options.unix_socket is None:
            self._options = msgspec.structs.replace(self._options, port=listening.getsockname()[1])
        options = self._options
        try:
            backend = Backend(lambda: open_served(options.store), sweeps=options.sweeps)
            app = self._application(backend).build()
            config = uvicorn.Config(
                app,
                http=ServerConnection,
                log_level="warning",
                log_config=None,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=GRACE_S,
                h11_max_incomplete_event_size=_HEADERS_MAX_BYTES,
                proxy_headers=options.behind_proxy,
                server_header=False,
                ws="none",
                ssl_certfile=options.tls_cert,
                ssl_keyfile=options.tls_key,
            )
            if options.tls_cert:
                _check_certificate(options)
            specs = spec_worker(options.store, self._print) if options.specs else None
            server = _Uvicorn(config, backend, lambda: self._print(f"serving {options.url}"), specs)
            # uvicorn raises the signal that stopped it once more at its end; a stop that was asked for is no failure.
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, _stopped)
            server.run([listening])
            if isinstance(server.failed, BadInput):
                raise server.failed
            if server.failed is not None:
                raise StoreUnusable(f"the server could not start: {server.failed}") from server.failed
        finally:
            listening.close()
            if options.unix_socket:
                options.unix_socket.unlink(missing_ok=True)

    def _application(self, backend: Backend) -> Application:
        options = self._options
        return Application(
            backend,
            self._authenticate(backend),
            limits=options.limits,
            redact=options.redact,
            cors_origins=options.cors_origins,
        )

    def _authenticate(self, backend: Backend) -> Authenticate:
        if self._options.no_token:
            return allow_anyone
        if self._options.auth is not None:
            return _named_hook(self._options.auth)
        path = self._options.token_file or token_file(self._options.local_place)
        tokens = KnownTokens()
        tokens.add(read_or_make_token(path), grant_of("owner", ["admin"]))
        self._print(f"token: {path}")
        return StoreTokens(backend, tokens)


class _Uvicorn(uvicorn.Server):
    """Opens the store before it says that it serves, and ends streams as soon as a signal comes."""

    def __init__(
        self, config: uvicorn.Config, backend: Backend, ready: Callable[[], None], specs: WorkerPool | None = None
    ) -> None:
        super().__init__(config)
        self._backend = backend
        self._ready = ready
        self._specs = specs
        self._driving: asyncio.Task[PoolEnd] | None = None
        self.failed: Exception | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await self._backend.opened()
        except Exception as error:  # noqa: BLE001 - shown by the caller as why the server did not start
            self.failed = error
            self.should_exit = True
            return
        await super().startup(sockets)
        if not self.should_exit:
            self._ready()
            if self._specs is not None:
                self._driving = asyncio.get_running_loop().create_task(self._specs.run(), name="buoy-specs")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._specs is not None:
            self._specs.stop("SIGTERM")
        await self._backend.end_streams()
        await super().shutdown(sockets)
        if self._driving is not None:
            await self._driving


def _named_hook(name: str) -> Authenticate:
    """The user's own function: it maps a request to a grant, or to None."""
    module, _, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function or "authenticate")
    except (ImportError, AttributeError) as error:
        raise BadInput(f"--auth {name} cannot be loaded: {error}; write 'package.module:function'") from error
    if not callable(found):
        raise BadInput(f"--auth {name} is no function; name an async function of a request")
    return cast(Authenticate, found)


def _stopped(number: int, frame: FrameType | None) -> None:
    """The server has ended already."""


def listen(options: ServeOptions) -> socket.socket:
    """The socket of a server. Raises `BadInput` if the address is taken."""
    try:
        if options.unix_socket is None:
            return _listen_tcp(options)
        return _listen_unix(options.unix_socket)
    except OSError as error:
        raise BadInput(f"cannot listen on {options.place}: {error.strerror or error}") from error


def _listen_tcp(options: ServeOptions) -> socket.socket:
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    found = socket.create_server((options.host, options.port), family=family, backlog=2048)
    # asyncio sets this only on sockets that name their protocol, which `create_server` leaves out. Without it the body
    # of each answer waits 40 ms for the acknowledgement of its headers. Accepted connections inherit it.
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return found


def _listen_unix(path: Path) -> socket.socket:
    """A socket that only its owner can connect to. One that a dead server left behind is replaced."""
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    if path.is_socket():
        try:
            found.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
        else:
            found.close()
            raise BadInput(f"another server listens on {path}; stop it first")
        found.close()
        found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    found.bind(str(path))
    path.chmod(0o600)
    found.listen(2048)
    return found


def _check_certificate(options: ServeOptions) -> None:
    try:
        assert options.tls_cert is not None
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(options.tls_cert, options.tls_key)
    except (ssl.SSLError, OSError) as error:
        raise BadInput(f"the certificate {options.tls_cert} cannot be used: {error}") from error
