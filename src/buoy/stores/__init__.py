"""Stores: where runs live. One URL chooses; each store keeps the contract in `buoy.testing.contracts`."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from buoy.core.extras import INSTALL_POSTGRES
from buoy.core.urls import shown_url
from buoy.errors import BadInput
from buoy.ports.host import Clock
from buoy.ports.store import Store

_FORMS = (
    "write 'sqlite:///runs.db', 'sqlite:////var/lib/buoy/runs.db', a path that ends in '.db', 'file:///folder', "
    "'s3://bucket/prefix', 'postgresql://user@host/database?schema=buoy' or 'http://host:port'"
)


async def open_store(url: str, clock: Clock) -> Store:
    """The store that a URL names, made if it is not there. Only the chosen adapter is imported."""
    scheme, mark, rest = url.partition("://")
    if not mark:
        if not url.endswith(".db"):
            raise BadInput(f"store {shown_url(url)!r} is neither a URL nor a path to a .db file; {_FORMS}")
        return await _sqlite(url, clock)
    match scheme:
        case "sqlite":
            return await _sqlite(_path(url, rest), clock)
        case "file":
            from buoy.stores.objects.folder_store import FolderStore

            # A URL's path is absolute: file:///dir is the folder /dir.
            return await FolderStore.open(Path("/" + _path(url, rest).lstrip("/")), clock=clock)
        case "s3" | "gs" | "az":
            from buoy.stores.objects.s3_store import open_s3

            return await open_s3(url, clock)
        case "postgresql" | "postgres":
            return await _postgres(url, clock)
        case "http" | "https" | "http+unix":
            from buoy.config import server_token
            from buoy.stores.http.store import HttpStore

            return await HttpStore.open(url, server_token(url), clock=clock)
        case _:
            raise BadInput(f"store {shown_url(url)!r}: there is no store for {scheme!r}; {_FORMS}")


async def _sqlite(path: str, clock: Clock) -> Store:
    from buoy.stores.sqlite.store import SqliteStore

    return await SqliteStore.open(Path(path), clock=clock)


async def _postgres(url: str, clock: Clock) -> Store:
    try:
        import_module("psycopg")
    except ImportError as error:
        # It is missing, or it is there without the library of the server.
        raise BadInput(
            f"store {shown_url(url)!r} needs the driver psycopg; install it with: {INSTALL_POSTGRES}"
        ) from error
    from buoy.stores.postgres.store import PostgresStore

    return await PostgresStore.open(url, clock=clock)


def _path(url: str, rest: str) -> str:
    """The path after `scheme:///`; a fourth slash makes it absolute."""
    if not rest.startswith("/") or len(rest) < 2:
        raise BadInput(f"store {shown_url(url)!r} names no path; {_FORMS}")
    return rest[1:]
