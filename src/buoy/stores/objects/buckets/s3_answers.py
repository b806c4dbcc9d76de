"""S3 answers: what the errors of obstore mean for a bucket.

Invariants: an error whose cause is unknown is unclear, so `Unavailable`. A missing bucket is never a missing
object. obstore shows the HTTP status and the error code of S3 only inside its message: they are machine-made, and read
here and nowhere else. Where they cannot be read, the answer counts as unclear. No more of the server's own text is
kept: it may repeat credentials, and errors are logged.
"""

from __future__ import annotations

import re

import msgspec

from buoy.errors import StoreUnusable, Unavailable

_STATUS = re.compile(r"non-2xx status code: ([0-9]{3})")
# What follows is the body of the answer.
_NO_LISTING = re.compile(r"Got invalid [a-z ]{1,40} response")
_CODE = re.compile(r"<Code>([A-Za-z0-9]{1,64})</Code>")
# The server took nothing in: the same request may be sent again.
_REFUSED_CODES = frozenset({"SlowDown", "SlowDownRead", "SlowDownWrite", "TooManyRequests", "RequestLimitExceeded"})
_UNCLEAR_4XX = frozenset({404, 408, 409, 412, 429})
_DENIED = frozenset({401, 403})
DETAIL_CHARS_MAX = 240


class Answer(msgspec.Struct, frozen=True):
    """The status and the code of an answer, as far as obstore shows them."""

    status: int | None
    code: str | None

    @property
    def throttled(self) -> bool:
        """The server did not even begin: it asks its clients to slow down."""
        return self.code in _REFUSED_CODES or self.status == 429

    @property
    def no_bucket(self) -> bool:
        return self.code == "NoSuchBucket"


def answer_of(error: BaseException) -> Answer:
    """What the server answered, if it did."""
    text = str(error)
    status, code = _STATUS.search(text), _CODE.search(text)
    return Answer(int(status[1]) if status else None, code[1] if code else None)


def without_body(error: BaseException) -> Answer:
    """What the server answered. Its text is taken out of the error: AWS repeats a session token that it refuses."""
    answer, text = answer_of(error), str(error)
    known = _STATUS.search(text) or _NO_LISTING.search(text)
    text = text[: known.end()] if known else first_line(error).partition("<")[0]
    error.args = (f"{text} <Code>{answer.code}</Code>" if answer.code else text,)
    return answer


def problem_of(error: BaseException, name: str, what: str) -> StoreUnusable | Unavailable:
    """What a caller of the store gets for an error that no rule of the bucket explains."""
    answer = answer_of(error)
    if answer.no_bucket:
        return StoreUnusable(f"{name}: there is no such bucket; create it, or correct the name")
    found = " ".join(part for part in (str(answer.status or ""), answer.code or "") if part) or first_line(error)
    if answer.code == "RequestTimeTooSkewed":
        return StoreUnusable(f"{name} refuses {what}: the clock of this machine is wrong; set it")
    if answer.status in _DENIED:
        return StoreUnusable(
            f"{name} refuses {what}: {found}; check the credentials, and that they allow s3:GetObject, s3:PutObject, "
            "s3:DeleteObject and s3:ListBucket"
        )
    refused = answer.status is not None and 400 <= answer.status < 500 and answer.status not in _UNCLEAR_4XX
    if refused and answer.code != "RequestTimeout":
        return StoreUnusable(f"{name} refuses {what}: {found}; check the URL and the bucket")
    return Unavailable(f"{name} gave no clear answer to {what}: {found}")


def first_line(error: BaseException) -> str:
    """The error without obstore's report of its insides, which follows on further lines."""
    return (str(error).splitlines() or [type(error).__name__])[0][:DETAIL_CHARS_MAX]
