"""Bundles as found: whether an incident can be imported with its document, envelope and task unchanged.

The log must be one that a store can keep. A document that contradicts it is only doubtful, because that is what
incidents look like. Checks cover the form of all kept values: terminals show them and lists sort by them.
A foreign document has no log, because Buoy never drove its run. It is kept as it is, and no worker drives it.
Absent on purpose: whether the run is in trouble. `core.diagnosis.diagnose` judges what was brought.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from buoy.core.bundle.checks import IDENTITY_CHARS_MAX, BundleFinding, Checked, check, is_time, refusals
from buoy.core.bundle.format import Bundle, found_task, stored_document
from buoy.core.diagnosis.document_drift import differing
from buoy.core.ids import check_name, check_run_id, orchestrate_task_id
from buoy.core.limits import DOCUMENT_LIST_MAX, PAYLOAD_BYTES_MAX
from buoy.core.log.document import Document, document
from buoy.core.log.state import State

# More generations than a run can ever have: the file is wrong.
GENERATION_MAX = 1_000_000
_TEXTS = ("workflow", "version", "queue", "policy", "stack", "env", "owner")


class BundledRun(msgspec.Struct, frozen=True):
    """What the checks found, and the document to be kept; None if the bundle is wrong."""

    checked: Checked
    document: Document | None = None


def check_found(bundle: Bundle) -> BundledRun:
    """All that is to be said against keeping this bundle as it is."""
    stored = stored_document(bundle)
    wrong = [*_wrong_document(bundle, stored), *_wrong_task(bundle)]
    if not bundle.log:
        wrong += _wrong_foreign(bundle, stored)
        if wrong or stored is None:
            return BundledRun(Checked(tuple(BundleFinding("wrong", text) for text in wrong)))
        text = "it has a document but no log: no Buoy drove it, and none will before it is adopted"
        return BundledRun(Checked((BundleFinding("doubtful", text),)), stored)
    checked = check(bundle, caches=False)
    findings = (*(BundleFinding("wrong", text) for text in wrong), *checked.findings)
    if wrong or checked.state is None:
        return BundledRun(Checked(findings))
    lies = tuple(_about_document(bundle, stored, checked.state))
    tasks = tuple(BundleFinding("doubtful", text) for text in _doubtful_tasks(bundle))
    kept = document(checked.state) if stored is None else stored
    return BundledRun(Checked((*findings, *lies, *tasks), checked.state), kept)


def _wrong_document(bundle: Bundle, stored: Document | None) -> Iterator[str]:
    if stored is None:
        return
    if stored.run_id != bundle.run_id:
        yield f"the document is that of {stored.run_id[:40]!r}"
    if len(bytes(bundle.document)) > PAYLOAD_BYTES_MAX:
        yield f"the document has {len(bytes(bundle.document)):,} bytes, the limit is {PAYLOAD_BYTES_MAX:,}"
    if len(stored.open) > DOCUMENT_LIST_MAX:
        yield f"the document lists {len(stored.open):,} open leaves, the limit is {DOCUMENT_LIST_MAX}"
    times = [stored.created_at, stored.updated_at, *(each.since for each in stored.open)]
    times += [at for at in (stored.wake_at, *(each.due_at for each in stored.open)) if at is not None]
    for at in times:
        if not is_time(at):
            yield f"the document has the time {at!r}, which is none"
    texts = [getattr(stored, name) for name in _TEXTS]
    texts += [text for each in stored.open for text in (each.leaf, each.kind, each.name, each.question_id)]
    for text in texts:
        if text is not None and (len(text) > IDENTITY_CHARS_MAX or not text.isprintable()):
            yield f"the document has {text[:40]!r}, which is not printable, or is too long"
    yield from refusals(lambda: check_name(stored.workflow, "workflow"), lambda: check_name(stored.queue, "queue"))
    if stored.parent is not None:
        parent = stored.parent.run
        yield from refusals(lambda: check_run_id(parent))


def _wrong_task(bundle: Bundle) -> Iterator[str]:
    task = found_task(bundle)
    if not 1 <= bundle.envelope.generation <= GENERATION_MAX:
        yield f"the envelope's generation is {bundle.envelope.generation}; it counts from 1 to {GENERATION_MAX:,}"
    if task is None:
        return
    if task.state == "held" and task.holder is None:
        yield f"the task {task.id} is held, but no holder is named"
    if task.holder is not None:
        holder = task.holder
        yield from refusals(lambda: check_run_id(holder))
    if task.due_at is not None and not is_time(task.due_at):
        yield f"the task {task.id} is due at {task.due_at!r}, which is no time"


def _wrong_foreign(bundle: Bundle, stored: Document | None) -> Iterator[str]:
    if stored is None:
        yield "it has neither a log nor a document"
    if bundle.inbox or bundle.tasks or bundle.envelope.orchestrator_task_id is not None:
        yield "it has no log, but an inbox, a task or an orchestrator: what no Buoy drove has none of these"


def _about_document(bundle: Bundle, stored: Document | None, state: State) -> Iterator[BundleFinding]:
    """Lag is not drift: a document that is merely older claims nothing about what came after."""
    folded = document(state)
    if stored is None:
        if bytes(bundle.document) != b"null":
            yield BundleFinding("doubtful", "the document cannot be read; the log was folded instead")
    elif stored.head_seq < folded.head_seq:
        yield BundleFinding("noted", f"the document is at event {stored.head_seq}, the log ends at {folded.head_seq}")
    elif wrong := differing(stored, folded):
        yield BundleFinding("doubtful", f"the document disagrees with the log about {', '.join(wrong)}")


def _doubtful_tasks(bundle: Bundle) -> Iterator[str]:
    expected = orchestrate_task_id(bundle.run_id, bundle.envelope.generation)
    for task in bundle.tasks or ():
        if task.id != expected:
            yield f"the task {task.id[:80]!r} is not the one that drives the run, {expected}: it is left behind"
    task_id = bundle.envelope.orchestrator_task_id
    if task_id not in (None, expected):
        yield f"the envelope names the task {task_id[:80]!r}; its generation is {bundle.envelope.generation}"
