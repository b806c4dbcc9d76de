"""URLs of stores, as they may be shown: a password or a token in one never reaches a terminal, a log or an error."""

from __future__ import annotations

import re

# In libpq's other form of an address: `host=db password='x y'`.
_PASSWORD = re.compile(r"(password\s*=\s*)('[^']*'?|\S+)", re.IGNORECASE)
_LOCAL = ("sqlite", "file", "memory")


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
