"""The address of a PostgreSQL store: what libpq needs to connect, the schema, and a name without secrets.

Invariants: everything but `schema` belongs to libpq, which also reads service files and its `PG*` variables. The
address is shown only by `name`, which holds neither a user nor a password.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, urlencode

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from buoy.core.urls import shown_url
from buoy.errors import BadInput

DEFAULT_SCHEMA = "buoy"
# Names of channels and of locks are made of it, and PostgreSQL cuts names at 63 bytes. It keeps `pg_` for itself.
_SCHEMA = re.compile(r"(?!pg_)[A-Za-z_][A-Za-z0-9_-]{0,49}\Z")
_OPTION = re.compile(r"[a-z_]{1,40}\Z")
# A server that went away silently is noticed in less than a minute. What the address says counts more.
_DEFAULTS: dict[str, str | int] = {
    "connect_timeout": 10,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
    "application_name": "buoy",
}
# A store holds texts of every language, whatever PGCLIENTENCODING says.
_FIXED = {"client_encoding": "UTF8"}


class Address(NamedTuple):
    """Where a store is. Never shown as a whole: `conninfo` may hold a password."""

    conninfo: str
    schema: str

    def __repr__(self) -> str:
        return f"Address(schema={self.schema!r})"

    @property
    def quoted(self) -> str:
        """The schema as an identifier in SQL."""
        return '"' + self.schema + '"'

    @property
    def places(self) -> dict[str, str]:
        """The hosts, ports and database of the address: all of them, not only the one that answered."""
        given = conninfo_to_dict(self.conninfo)
        return {name: str(given[name]) for name in ("host", "port", "dbname") if given.get(name)}

    @property
    def channel(self) -> str:
        """The channel of the hints of this store."""
        return f"buoy_{self.schema}"

    @property
    def quoted_channel(self) -> str:
        return '"' + self.channel + '"'


def address_of(url: str) -> Address:
    """The address that a URL names, or a refusal."""
    head, mark, query = url.partition("?")
    options = parse_qsl(query, keep_blank_values=True) if mark else []
    schema = next((value for name, value in options if name == "schema"), DEFAULT_SCHEMA)
    if not _SCHEMA.match(schema):
        raise BadInput(
            f"schema {schema[:60]!r} is not allowed; use letters, digits, '_' and '-', beginning with a letter and not "
            "with 'pg_', at most 50 of them"
        )
    rest = [(name, value) for name, value in options if name != "schema"]
    _check(head, rest)
    plain = f"{head}?{urlencode(rest, quote_via=quote)}" if rest else head
    try:
        given = conninfo_to_dict(plain)
    except psycopg.Error as error:
        # What libpq says about a URL may quote its password.
        raise BadInput(
            f"store {shown_url(url)!r} is not an address of PostgreSQL ({type(error).__name__}); "
            "write 'postgresql://user@host/database?schema=buoy'"
        ) from None
    return Address(make_conninfo("", **{**_DEFAULTS, **given, **_FIXED}), schema)


def _check(head: str, options: list[tuple[str, str]]) -> None:
    """Refuses what libpq would read as another address, and then quote: part of a password may be among it."""
    place = head.partition("://")[2]
    if place.count("@") > 1 or "@" in place.partition("/")[2]:
        raise BadInput(
            "the URL of the store has an '@' or a '/' inside of its user or password; write '%40' and '%2F', or keep "
            "the password in a password file"
        )
    known = {each.keyword.decode() for each in psycopg.pq.Conninfo.get_defaults()} | {"ssl"}
    names = [name for name, _ in options]
    for name in names:
        if name not in known:
            # A '?' or '&' inside of a password makes the rest of it look like an option.
            shown = f" {name!r}" if _OPTION.match(name) and "password" not in names else ""
            raise BadInput(
                f"the URL of the store has an unknown option{shown}; 'schema' is Buoy's, all others are libpq's, and a "
                "'?' or '&' inside of a password is written '%3F' or '%26'"
            )


def shown_name(schema: str, parameters: dict[str, str]) -> str:
    """The store's name out of what libpq used to connect: hosts, port, database and schema."""
    host, port = parameters.get("host", ""), parameters.get("port", "5432")
    database = quote(parameters.get("dbname", ""), safe="")
    if host.startswith(("/", "@")) or not host:
        place = f"/{database}?host={quote(host)}&port={port}&schema={schema}"
        return f"postgresql://{place}"
    hosts, ports = host.split(","), port.split(",")
    # An empty entry of several stands for the default.
    pairs = (f"{each}:{ports[min(number, len(ports) - 1)] or '5432'}" for number, each in enumerate(hosts))
    return f"postgresql://{','.join(pairs)}/{database}?schema={schema}"
