"""URLs of stores, as they may be shown: a password or a token in one never reaches a terminal, a log or an error."""

from __future__ import annotations

import re

# In libpq's other form of an address: `host=db password='x y'`.
_PASSWORD = re.compile(r"(password\s*=\s*)('[^']*'?|\S+)", re.IGNORECASE)
_LOCAL = ("sqlite", "file", "memory")
_BUCKETS = ("s3", "gs", "az")
# How a bucket is reached. None of them holds a secret.
BUCKET_OPTIONS = ("endpoint", "path_style", "profile", "region", "timeout")


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
    """The shown URL with the options by which a bucket is reached: a command with it finds the same store."""
    shown, (place, _, query) = shown_url(url), url.partition("?")
    if place != shown or place.partition("://")[0] not in _BUCKETS:
        return shown
    kept = [each for each in query.split("&") if each.partition("=")[0] in BUCKET_OPTIONS]
    return "?".join(filter(None, (shown, "&".join(kept))))
