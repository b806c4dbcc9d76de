"""`buoy serve`: the server for the HTTP API, live streams and remote runners."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from buoy.cli.terminal.output import say
from buoy.cli.terminal.program import Exit, shared_options
from buoy.core.extras import INSTALL_SERVER
from buoy.errors import BadInput

_PATH = click.Path(path_type=Path)
_INSTALL = f"`buoy serve` needs the server's packages; install them with: {INSTALL_SERVER}"


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8642, show_default=True, help="Port to listen on.")
@click.option("--socket", "unix_socket", type=_PATH, help="Listen on this unix socket instead of a port.")
@click.option("--token-file", type=_PATH, help="File with the token, mode 0600. Made if it does not exist.")
@click.option("--no-token", is_flag=True, help="Ask for no token. Only with --socket.")
@click.option("--auth", metavar="MODULE:FUNCTION", help="Function of yours that maps a request to a grant.")
@click.option("--tls-cert", type=_PATH, help="Certificate chain for https, PEM.")
@click.option("--tls-key", type=_PATH, help="Private key for https, PEM.")
@click.option("--behind-proxy", is_flag=True, help="Listen beyond loopback without TLS, because a proxy has it.")
@click.option("--no-sweep", is_flag=True, help="Leave the search for dead and lost runs to workers and sweepers.")
@click.option(
    "--specs", is_flag=True, help="Keep a worker beside the server that drives runs of specs, batch runs too."
)
@click.option("--rate", type=click.FloatRange(0.1), help="Requests per second of one caller. [any number]")
@click.option("--streams-max", type=click.IntRange(1), default=10_000, show_default=True, help="Open live streams.")
@click.option(
    "--redact",
    multiple=True,
    metavar="PATTERN",
    help="Hide values of keys like this in the API and streams: '*password*'; may be repeated.",
)
@click.option(
    "--cors-origin",
    "cors_origins",
    multiple=True,
    metavar="ORIGIN",
    help="Let pages of exactly this origin call the API from a browser: https://app.example.com; may be repeated.",
)
@click.option("--log-json", is_flag=True, help="Write log lines as JSON objects, to standard error.")
@shared_options
def serve(
    no_sweep: bool, rate: float | None, streams_max: int, store: str | None, as_json: bool, **listening: Any
) -> int:
    """Serve a store over HTTP: the API, live streams, and the store itself for remote runners.

    The first start makes a token in a file that only you can read. Commands of the same user on this machine find it
    by themselves; give others the token in BUOY_TOKEN, and the URL in --store.

    With --specs a worker process of its own, started again if it crashes, drives runs of specs. It owns batch runs,
    whose jobs runners execute. Commands of other runs of specs it executes itself, as the user of the server.

    \b
    Example:
      buoy serve --port 8642
      buoy ps --store http://127.0.0.1:8642

    Exit code: 0 stopped by a signal, 2 refused, 5 store unusable.
    """
    try:
        from buoy.web.limits import ServerLimits
        from buoy.web.serve import ServeOptions, Server
    except ModuleNotFoundError as error:
        raise BadInput(_INSTALL) from error
    limits = ServerLimits(rate=rate, streams=streams_max)
    options = ServeOptions(store=store, sweeps=not no_sweep, limits=limits, **listening)
    Server(options, lambda line: say(line, err=as_json)).run()
    return Exit.OK
