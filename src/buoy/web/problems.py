"""Problems: errors as HTTP answers (problem+json), each with a stable code, what is wrong and what to do.

Invariant: every error class of Buoy has a row here, so that no client must read a message to know what happened.
"""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from buoy import errors


class ProblemBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of an answer that is an error. `code` never changes; `title` says what to do; `detail` what is wrong."""

    type: str
    code: str
    title: str
    status: int
    detail: str
    # The key with which an unclear request is to be made again.
    key: str | None = None
    # Why an answer to a question was refused.
    reason: errors.QuestionReason | None = None


class Kind(msgspec.Struct, frozen=True):
    code: str
    status: int
    title: str


KINDS: dict[type[BaseException], Kind] = {
    errors.UnknownWorkflow: Kind("unknown_workflow", 404, "Name a workflow that this store has a definition of."),
    errors.UnknownRun: Kind("unknown_run", 404, "Check the id of the run."),
    errors.UnknownSchedule: Kind("unknown_schedule", 404, "Name a schedule that `GET /schedules` lists."),
    errors.UnknownQuestion: Kind("unknown_question", 409, "Read the open questions of the run and answer one of them."),
    errors.BadSpec: Kind("bad_spec", 422, "Correct the spec."),
    errors.BadInput: Kind("bad_input", 422, "Correct the request."),
    errors.NotJson: Kind("not_json", 422, "Send plain JSON data."),
    errors.TooLarge: Kind("too_large", 413, "Store the data elsewhere and send a reference."),
    errors.InboxFull: Kind("inbox_full", 429, "Send it again when the run has read its messages."),
    errors.RecoveryFailed: Kind("recovery_failed", 500, "Read the error, and look at the run with `buoy why`."),
    errors.WrongState: Kind("wrong_state", 409, "Look at the present state first."),
    errors.NotAllowedHere: Kind("not_allowed_here", 409, "Ask for this at another place."),
    errors.Fenced: Kind("fenced", 409, "Another runner has taken the run over. Read it again."),
    errors.Unclear: Kind("unclear", 503, "Make the same request again with this key."),
    errors.Unavailable: Kind("unavailable", 503, "Read before you try again."),
    errors.StoreLost: Kind("store_lost", 500, "Restore the files of the store."),
    errors.StoreUnusable: Kind("store_unusable", 500, "Repair the store; `buoy doctor` says how."),
    errors.CorruptLog: Kind("corrupt_log", 500, "Look at the run with `buoy doctor`."),
    errors.UserError: Kind("refused", 422, "Correct the request."),
    errors.Problem: Kind("problem", 500, "Look at the server's log."),
}
BAD_REQUEST = Kind("bad_request", 400, "Send a request as RFC 9112 has it.")
UNAUTHENTICATED = Kind("unauthenticated", 401, "Send a token: `Authorization: Bearer ...`.")
FORBIDDEN = Kind("forbidden", 403, "Use a token with the scope that this call needs.")
NOT_FOUND = Kind("not_found", 404, "Check the path; /api/v1/openapi.json lists all of them.")
WRONG_METHOD = Kind("method_not_allowed", 405, "Use the method that the OpenAPI document names.")
BODY_TOO_LARGE = Kind("body_too_large", 413, "Send less at once.")
BODY_TOO_SLOW = Kind("body_too_slow", 408, "Send the body faster, or in smaller parts.")
HEADERS_TOO_LARGE = Kind("headers_too_large", 431, "Send fewer or shorter headers.")
RATE_LIMITED = Kind("rate_limited", 429, "Wait, then try again.")
TOO_MANY_STREAMS = Kind("too_many_streams", 503, "Close a stream first.")
INTERNAL = Kind("internal", 500, "Look at the server's log; it has the details.")


# What the server itself refuses, besides what operations raise.
_OWN = (
    BAD_REQUEST, UNAUTHENTICATED, FORBIDDEN, NOT_FOUND, WRONG_METHOD, BODY_TOO_LARGE, BODY_TOO_SLOW,
    HEADERS_TOO_LARGE, RATE_LIMITED, TOO_MANY_STREAMS, INTERNAL,
)  # fmt: skip
# Of every answer that is an error.
CODES = tuple(sorted({each.code for each in (*KINDS.values(), *_OWN)}))


def kind_of(error: BaseException) -> Kind:
    return next((KINDS[each] for each in type(error).__mro__ if each in KINDS), INTERNAL)


def problem(
    kind: Kind, detail: str, *, key: str | None = None, reason: errors.QuestionReason | None = None
) -> Response:
    """The answer for an error of that kind."""
    body = ProblemBody(f"urn:buoy:problem:{kind.code}", kind.code, kind.title, kind.status, detail, key, reason)
    headers = {"WWW-Authenticate": "Bearer"} if kind is UNAUTHENTICATED else None
    return Response(
        msgspec.json.encode(body), status_code=kind.status, media_type="application/problem+json", headers=headers
    )


def problem_of(error: BaseException) -> Response:
    """The answer for an error that an operation raised."""
    kind = kind_of(error)
    if kind is INTERNAL:
        # What an unexpected error says may hold anything: it goes to the log, not to the caller.
        return problem(kind, f"the server failed with {type(error).__name__}")
    return problem(kind, str(error), key=getattr(error, "key", None), reason=getattr(error, "reason", None))
