"""Bundle checks: whether a bundle is a run that a store can keep, and whether one should trust it.

Three kinds of findings: `wrong` (no store could keep such a log: refused in any case), `doubtful` (it can be kept, but
no Buoy writes such a log: only kept on hold, and only if asked for) and `noted` (a cache that disagrees with the log).
Absent on purpose: repairs. A bundle is taken as it is, or not at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Literal, TypeAlias

import msgspec

from buoy.core.bundle.format import Bundle, stored_document
from buoy.core.diagnosis.document_drift import differing
from buoy.core.ids import ROOT_BRANCH, BranchId, check_dedupe, check_name, check_run_id, orchestrate_task_id
from buoy.core.limits import (
    BUNDLE_BRANCH_WORK_MAX,
    INBOX_MESSAGES_MAX,
    LOG_EVENTS_MAX,
    MESSAGE_BYTES_MAX,
    PAYLOAD_BYTES_MAX,
    SPEC_LOG_EVENTS_MAX,
)
from buoy.core.log import events as e
from buoy.core.log.document import document
from buoy.core.log.renames import check_pairs
from buoy.core.log.state import State, fold
from buoy.core.spec.model import is_spec, spec_hash
from buoy.errors import BadInput, CorruptLog

Weight: TypeAlias = Literal["wrong", "doubtful", "noted"]

FINDINGS_MAX = 20
IDENTITY_CHARS_MAX = 1_000
# Times are shown and sorted by: some 3,000 years are enough.
TIME_MAX_S = 1e11

# What people see on terminals and what becomes part of keys.
_IDENTITIES = (
    "leaf", "name", "key", "runner", "question_id", "child", "workflow", "step", "module", "queue", "version",
    "policy", "compensate", "stack", "env", "cause",
)  # fmt: skip
_RAW: dict[type[e.Payload], tuple[str, ...]] = {
    kind: tuple(field.name for field in msgspec.structs.fields(kind) if field.type is msgspec.Raw) for kind in e.BODIES
}


class BundleFinding(msgspec.Struct, frozen=True):
    weight: Weight
    text: str


class Checked(msgspec.Struct, frozen=True):
    """What the checks found; `state` is None if the log is wrong (or not there: see `core.bundle.as_found`)."""

    findings: tuple[BundleFinding, ...]
    state: State | None = None

    def texts(self, weight: Weight) -> list[str]:
        return [finding.text for finding in self.findings if finding.weight == weight]


def check(bundle: Bundle, *, caches: bool = True) -> Checked:
    """All that is to be said against a bundle, the first twenty of each kind; `caches`: document and envelope, too."""
    parts = (_wrong_log, _wrong_branches, _wrong_inbox, _wrong_definitions)
    wrong = [text for part in parts for text in _first(part(bundle))]
    state: State | None = None
    if not wrong:
        try:
            state = fold(bundle.run_id, bundle.log)
            document(state)
        except CorruptLog as error:
            wrong.append(str(error))
    if wrong or state is None:
        return Checked(tuple(BundleFinding("wrong", text) for text in wrong))
    doubtful = [BundleFinding("doubtful", text) for text in (*state.anomalies, *_first(_doubtful(bundle)))]
    texts = chain(_noted_caches(bundle, state) if caches else (), _noted(bundle))
    noted = [BundleFinding("noted", text) for text in _first(texts)]
    return Checked((*doubtful, *noted), state)


def _first(found: Iterator[str]) -> list[str]:
    return [text for text, _ in zip(found, range(FINDINGS_MAX), strict=False)]


def _wrong_log(bundle: Bundle) -> Iterator[str]:
    log = bundle.log
    if not log or not isinstance(log[0].body, e.WorkflowCreated):
        yield f"the log begins with {log[0].type if log else 'nothing'}; it must begin with workflow_created"
    most = SPEC_LOG_EVENTS_MAX if versions(log) else LOG_EVENTS_MAX
    if len(log) > most:
        yield f"the log has {len(log):,} events, the limit is {most:,}"
    for place, event in enumerate(log, 1):
        if event.seq != place:
            yield f"event {event.seq} stands at place {place}: events are numbered 1, 2, 3... without gaps"
        if not is_time(event.at):
            yield f"event {event.seq}: the time {event.at!r} is none"
        yield from (f"event {event.seq}: {text}" for text in _wrong_body(event.body, len(bundle.inbox)))


def _wrong_body(body: e.Body, messages: int) -> Iterator[str]:
    for name in _RAW[type(body)]:
        size = len(bytes(getattr(body, name)))
        if size > PAYLOAD_BYTES_MAX:
            yield f"its {name} has {size:,} bytes, the limit is {PAYLOAD_BYTES_MAX:,}"
    for name in _IDENTITIES:
        text = getattr(body, name, None)
        if isinstance(text, str) and (len(text) > IDENTITY_CHARS_MAX or not text.isprintable()):
            yield f"its {name} {text[:40]!r} is not printable, or is too long"
    message = getattr(body, "message", None)
    if isinstance(message, int) and not 1 <= message <= messages:
        yield f"it consumes message {message}, but the inbox has the messages 1 to {messages}"
    due_at = getattr(body, "due_at", None)
    if due_at is not None and not is_time(due_at):
        yield f"its time {due_at!r} is none"
    if isinstance(body, e.WorkflowCreated):
        yield from refusals(lambda: check_name(body.workflow, "workflow"), lambda: check_name(body.queue, "queue"))
        if body.parent is not None:
            parent = body.parent.run
            yield from refusals(lambda: check_run_id(parent))
    elif isinstance(body, e.ChildStarted):
        yield from refusals(lambda: check_run_id(body.child))
    elif isinstance(body, e.VersionBound):
        yield from refusals(lambda: check_pairs(body.renamed))


def _wrong_branches(bundle: Bundle) -> Iterator[str]:
    known: set[BranchId] = {ROOT_BRANCH}
    for event in bundle.log:
        # Run-level events belong to the whole log, whatever branch they were written on.
        if event.branch not in known and not e.is_run_level(event.body):
            yield f"event {event.seq} is on branch {event.branch}, which was not created before it"
        body = event.body
        if not isinstance(body, e.BranchCreated):
            continue
        if body.branch in known:
            yield f"event {event.seq} creates branch {body.branch} again"
        if body.parent not in known:
            yield f"event {event.seq}: the parent of branch {body.branch} is {body.parent}, which does not exist"
        if not 0 <= body.cutoff_seq < event.seq:
            yield f"event {event.seq}: the cutoff {body.cutoff_seq} of branch {body.branch} is not before it"
        known.add(body.branch)
    renames = sum(1 for event in bundle.log if isinstance(event.body, e.VersionBound) and event.body.renamed)
    if renames * len(bundle.log) > BUNDLE_BRANCH_WORK_MAX:
        yield f"{renames:,} renames over {len(bundle.log):,} events are more than can be read in bounded time"
    if (len(known) - 1) * len(bundle.log) > BUNDLE_BRANCH_WORK_MAX:
        yield f"{len(known) - 1:,} branches over {len(bundle.log):,} events are more than can be read in bounded time"


def _wrong_inbox(bundle: Bundle) -> Iterator[str]:
    if len(bundle.inbox) > INBOX_MESSAGES_MAX:
        yield f"the inbox has {len(bundle.inbox):,} messages, the limit is {INBOX_MESSAGES_MAX:,}"
    seen: dict[str, int] = {}
    for place, message in enumerate(bundle.inbox, 1):
        if message.number != place:
            yield f"message {message.number} stands at place {place}: messages are numbered 1, 2, 3... without gaps"
        first = seen.setdefault(message.dedupe, place)
        if first != place:
            yield f"message {place} has the dedupe id of message {first}"
        if len(bytes(message.body)) > MESSAGE_BYTES_MAX:
            yield f"message {place} has {len(bytes(message.body)):,} bytes, the limit is {MESSAGE_BYTES_MAX:,}"
        if not is_time(message.sent_at):
            yield f"message {place}: the time {message.sent_at!r} is none"
        for text in refusals(lambda text=message.dedupe: check_dedupe(text)):  # type: ignore[misc]
            yield f"message {place}: {text}"
        if not message.kind.isprintable() or len(message.kind) > IDENTITY_CHARS_MAX:
            yield f"message {place}: its kind {message.kind[:40]!r} is not printable, or is too long"


def _wrong_definitions(bundle: Bundle) -> Iterator[str]:
    """A store keeps a definition under its hash, for all runs: a wrong one would harm others."""
    for version, data in bundle.definitions.items():
        if spec_hash(bytes(data)) != version:
            yield f"definition {version[:40]!r} is not what its hash says; keep its bytes exactly as exported"


def _doubtful(bundle: Bundle) -> Iterator[str]:
    generation = bundle.envelope.generation
    if not 1 <= generation <= len(bundle.log):
        yield f"the envelope's generation is {generation}; it counts from 1, at most one for each event"


def _noted_caches(bundle: Bundle, state: State) -> Iterator[str]:
    stored, folded = stored_document(bundle), document(state)
    if bytes(bundle.document) == b"null":
        pass
    elif stored is None:
        yield "the document cannot be read; the log was folded instead"
    elif wrong := differing(stored, folded):
        yield f"the document disagrees with the log about {', '.join(wrong)}; the log was believed"
    expected = orchestrate_task_id(bundle.run_id, bundle.envelope.generation)
    if bundle.envelope.orchestrator_task_id not in (None, expected):
        yield f"the envelope names the task {bundle.envelope.orchestrator_task_id!r}; {expected} was believed"


def _noted(bundle: Bundle) -> Iterator[str]:
    for version in versions(bundle.log):
        if version not in bundle.definitions:
            yield f"definition {version!r} is not in the bundle; the run can be shown, but cannot continue without it"
    for before, after in zip(bundle.log, bundle.log[1:], strict=False):
        if after.at < before.at:
            yield f"event {after.seq} is dated before event {before.seq}; the numbers were believed"


def versions(log: Sequence[e.Event]) -> list[str]:
    """The definitions that a run was bound to; none if it is driven by code."""
    created = log[0].body if log else None
    if not isinstance(created, e.WorkflowCreated) or not is_spec(created.workflow):
        return []
    bound = (event.body.version for event in log if isinstance(event.body, e.WorkflowCreated | e.VersionBound))
    return list(dict.fromkeys(bound))


def refusals(*checks: Callable[[], object]) -> Iterator[str]:
    for one in checks:
        try:
            one()
        except BadInput as error:
            yield str(error)


def is_time(at: float) -> bool:
    return math.isfinite(at) and 0 <= at < TIME_MAX_S
