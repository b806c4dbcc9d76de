"""URLs of stores, as they may be shown: a password or a token in one never reaches a terminal, a log or an error."""

from __future__ import annotations

import re

# In libpq's other form of an address: `host=db password='x y'`.
_PASSWORD = re.compile(r"(password\s*=\s*)('[^']*'?|\S+)", re.IGNORECASE)
_LOCAL = ("sqlite", "file", "memory")
_BUCKETS = ("s3", "gs", "az")
# How a bucket is reached. None of them holds a secret.
BUCKET_OPTIONS = ("endpoint", "path_style", "profile", "region", "timeout")
_DATABASES = ("postgresql", "postgres")
# How a database is reached: likewise.
_DATABASE_OPTIONS = (
    "connect_timeout", "dbname", "host", "hostaddr", "passfile", "port", "schema", "service", "sslcert", "sslkey",
    "sslmode", "sslrootcert", "target_session_attrs", "user",
)  # fmt: skip
_USER = re.compile(r"[\w.~%-]+")


def shown_url(url: str) -> str:
    """The URL without user, password, query and fragment. What names a place of this machine stays as it is.

    By the last `@`, not by the rules of URLs: a password that should have been quoted must not be shown either.
    """
    scheme, mark, rest = url.partition("://")
    if not mark:
        return _PASSWORD.sub(r"\1...", url)
    if scheme in _LOCAL:
        return url
    place = rest.rpartition("@")[2]
    return f"{scheme}://{place.partition('?')[0].partition('#')[0]}"


def reaching_url(url: str) -> str:
    """The shown URL with the options by which a store is reached: a command with it finds the same store."""
    shown, (place, _, query) = shown_url(url), url.partition("?")
    scheme, _, rest = place.partition("://")
    if scheme in _DATABASES and "@" not in query:
        login, at, _ = rest.rpartition("@")
        user = _USER.match(login) if at and "@" not in login and "/" not in login else None
        named = shown if user is None else f"{scheme}://{user.group()}@{shown.partition('://')[2]}"
        return _with_options(named, query, _DATABASE_OPTIONS)
    if scheme in _BUCKETS and place == shown:
        return _with_options(shown, query, BUCKET_OPTIONS)
    return shown


def _with_options(shown: str, query: str, names: tuple[str, ...]) -> str:
    kept = [each for each in query.split("&") if each.partition("=")[0] in names]
    return "?".join(filter(None, (shown, "&".join(kept))))
