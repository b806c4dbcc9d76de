"""The border to PostgreSQL: its error codes as Buoy's errors, each with what a person can do.

Invariants: `Unavailable`: the outcome may be unclear. `NotWritten`: nothing was written, and waiting may help.
`StoreUnusable`: nothing was written, and only a person can change that. What libpq says is shown, and it never holds a
password. Its text is only shortened for the reader: an unknown form is shown as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import psycopg

from buoy.errors import NotWritten, Problem, StoreUnusable, Unavailable

# The server rolled back to let another transaction through: nothing was written, and the same may be tried again.
_COLLIDED = frozenset({"40001", "40P01"})
# A server that only reads: a standby, or a primary that was demoted.
READ_ONLY = "25006"
# The server has no prepared statement of that name: nothing was executed.
UNPREPARED = "26000"
_FOR_A_PERSON = {
    "28000": "refuses this user; correct the user, or pg_hba.conf",
    "28P01": "refuses the password; correct it, best in a password file or a service file",
    "3D000": "has no such database; create it first",
    "42501": "refuses this role; give it USAGE on the schema and rights on its tables, or CREATE on the database for a "
    "new schema, see docs/postgres.md",
    "53100": "has no room: its disk is full; nothing was written; free some space",
    "3F000": "has lost the schema of this store; restore it, or name another schema",
    "42P01": "has lost a table of this store; restore it, or name another schema",
    "42883": "has lost a function of this store; restore it, or name another schema",
    UNPREPARED: "sits behind a pooler that keeps statements of its own; switch that off",
}
_WAITING_HELPS = {
    "53300": "has no free connection; raise max_connections, or put a pooler before it, see docs/postgres.md",
    READ_ONLY: "only reads now: it is a standby, or its transactions are read-only; add all hosts and "
    "target_session_attrs=read-write to the URL",
    "57P03": "starts, stops or recovers",
}

# A line of psycopg about one host of several, and the place that libpq repeats before its reason.
_OF_HOST = re.compile(
    r"- host: '(?P<host>[^']*)', port: (?:'(?P<port>\d*)'|None), hostaddr: (?:'[^']*'|None): (?P<text>.*)"
)
_PLACE = re.compile(r'^.*?(?:, port \d+|socket "[^"]*") failed: ')
# A reader needs no more of them to see what is wrong.
HOSTS_SHOWN_MAX = 8


def code_of(error: BaseException) -> str:
    """The SQLSTATE of an error; empty if the server said none."""
    return (error.sqlstate or "") if isinstance(error, psycopg.Error) else ""


def collided(error: BaseException) -> bool:
    """Whether the server gave this transaction up for another one. Then nothing has happened."""
    return code_of(error) in _COLLIDED


def translated(error: psycopg.Error, name: str) -> Problem:
    """The same trouble in Buoy's words. Raise it `from` the original."""
    code = code_of(error)
    said = " ".join(str(error).split()) or type(error).__name__
    advice = _FOR_A_PERSON.get(code)
    if advice is not None:
        return StoreUnusable(f"{name} {advice} (PostgreSQL says: {said})")
    waiting = _WAITING_HELPS.get(code)
    if waiting is not None:
        return NotWritten(f"{name} {waiting} (PostgreSQL says: {said})")
    return Unavailable(f"{name} gave no clear answer: {said}; read before you write again")


def unreachable(error: psycopg.Error, name: str) -> Problem:
    """What came of an attempt to connect. Nothing was written. libpq mostly gives a text here and no code."""
    if code_of(error):
        return translated(error, name)
    said = "; ".join(_shortened(str(error))) or type(error).__name__
    return NotWritten(f"no connection to {name}: {said}; check the server, the address, the user and the password")


def _shortened(text: str) -> Iterator[str]:
    """What libpq says, without its hints. Of several hosts, each with its own reason and once."""
    lines = [line for line in text.splitlines() if not line.startswith("\t")]
    hosts = [found for line in lines if (found := _OF_HOST.match(line))]
    if not hosts:
        yield " ".join(" ".join(lines).split())
        return
    for number, host in enumerate(dict.fromkeys(map(_reason, hosts))):
        if number == HOSTS_SHOWN_MAX:
            yield "others failed, too"
            return
        yield host


def _reason(of_host: re.Match[str]) -> str:
    host, port, text = of_host.group("host"), of_host.group("port") or "5432", of_host.group("text")
    return f"{host}:{port}: {' '.join(_PLACE.sub('', text).split())}"


def closed(name: str) -> NotWritten:
    """What every call on a closed store gets."""
    return NotWritten(f"the store {name} is closed; open it again")
