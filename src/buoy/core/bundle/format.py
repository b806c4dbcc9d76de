"""Bundle: one run as one JSON file, to move an incident to another store and look at it there.

Invariants: what is written is the same for the same run, byte for byte; what is read is refused with the place where it
is wrong, or is a run that a store can keep. The log is the run: document, tasks and envelope are caches, written for
readers; only an import that is to bring an incident as it was found keeps them as they are. docs/bundle.md describes
the format for people.
Absent on purpose: files and stores. `core.bundle.checks` judges what was read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from buoy.core.ids import RunId, check_run_id, orchestrate_task_id
from buoy.core.limits import BUNDLE_BYTES_MAX
from buoy.core.log.codec import decode_events, encode_events
from buoy.core.log.document import Document
from buoy.core.log.events import NULL, Event, Paused, Resumed
from buoy.errors import BadInput, CorruptLog, TooLarge

KIND = "buoy-run"
FORMAT = 1
# The nonce of the commit by which an import holds a run begins so: an export of the untouched run leaves it out again.
HOLD_NONCE = "import-"

_ENCODER = msgspec.json.Encoder()


class BundleMessage(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A message of the run's inbox, under the number and the dedupe id that it had."""

    number: int
    kind: str
    dedupe: str
    body: msgspec.Raw
    sent_at: float = 0.0
    by: str | None = None


class BundleEnvelope(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The task that drives the run. Its id follows from the run and the generation."""

    generation: int = 1
    orchestrator_task_id: str | None = None


class BundleTask(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Work that the run wants done. A run that has not ended has one task, which drives it; others have none.

    `state`, `holder` and `due_at` say how it was found; only an import `as_found` uses them.
    """

    id: str
    workflow: str = ""
    queue: str = "default"
    stack: str | None = None
    env: str | None = None
    # Left out: held if there is a holder, else due.
    state: Literal["due", "held", "parked"] | None = None
    holder: str | None = None
    due_at: float | None = None


class Bundle(msgspec.Struct, frozen=True, kw_only=True):
    """A run as a file has it."""

    run_id: RunId
    log: tuple[Event, ...]
    inbox: tuple[BundleMessage, ...] = ()
    document: msgspec.Raw = NULL
    envelope: BundleEnvelope = BundleEnvelope()
    # None: the file does not say; what the log asks for.
    tasks: tuple[BundleTask, ...] | None = None
    # By version, for workflows that are data: the version is the hash of exactly these bytes.
    definitions: dict[str, msgspec.Raw] = {}


class _Head(msgspec.Struct):
    """As much of a file as shows what it is."""

    kind: str
    format: int


class _File(msgspec.Struct, forbid_unknown_fields=True):
    kind: str
    format: int
    run_id: str
    log: msgspec.Raw
    inbox: tuple[BundleMessage, ...] = ()
    document: msgspec.Raw = NULL
    envelope: BundleEnvelope = BundleEnvelope()
    tasks: tuple[BundleTask, ...] | None = None
    definitions: dict[str, msgspec.Raw] = {}


def render(bundle: Bundle) -> bytes:
    """The file: one line for each event, message and task, so that two bundles can be compared line by line."""
    fields: list[tuple[str, bytes]] = [
        ("kind", _ENCODER.encode(KIND)),
        ("format", _ENCODER.encode(FORMAT)),
        ("run_id", _ENCODER.encode(bundle.run_id)),
        ("document", bytes(bundle.document)),
        ("envelope", _ENCODER.encode(bundle.envelope)),
        *([] if bundle.tasks is None else [("tasks", _lines([_ENCODER.encode(task) for task in bundle.tasks]))]),
        ("definitions", _ENCODER.encode(dict(sorted(bundle.definitions.items())))),
        ("inbox", _lines([_ENCODER.encode(message) for message in bundle.inbox])),
        ("log", _lines([encode_events([event])[1:-1] for event in bundle.log])),
    ]
    return b"{\n" + b",\n".join(b'"%s": %s' % (name.encode(), body) for name, body in fields) + b"\n}\n"


def _lines(items: Sequence[bytes]) -> bytes:
    return b"[\n" + b",\n".join(items) + b"\n]" if items else b"[]"


def parse(data: bytes) -> Bundle:
    """A file as a bundle, or a refusal that says what is wrong and where. Its contents are still to be checked."""
    if len(data) > BUNDLE_BYTES_MAX:
        raise TooLarge(f"the bundle has {len(data):,} bytes, the limit is {BUNDLE_BYTES_MAX:,}")
    head = _decoded(data, _Head, "this is no bundle")
    if head.kind != KIND:
        raise BadInput(f"this is no bundle: its kind is {head.kind[:60]!r}, not {KIND!r}")
    if head.format != FORMAT:
        raise BadInput(f"the bundle has format {head.format}, this version of Buoy reads {FORMAT}; upgrade it")
    file = _decoded(data, _File, "the bundle cannot be read")
    try:
        log = decode_events(file.log, "the bundle's log")
    except CorruptLog as error:
        raise BadInput(str(error)) from error
    return Bundle(
        run_id=check_run_id(file.run_id),
        log=tuple(log),
        inbox=file.inbox,
        document=file.document,
        envelope=file.envelope,
        tasks=file.tasks,
        definitions=file.definitions,
    )


def _decoded(data: bytes, kind: type, what: str) -> Any:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"{what}: {error}") from error


def digest(bundle: Bundle) -> str:
    """Tells bundles of one run apart."""
    return hashlib.sha256(render(bundle)).hexdigest()[:24]


def without_hold(log: Sequence[Event]) -> tuple[Event, ...]:
    """The log as it was before an import put the run on hold, if nothing has happened since then."""
    for back in (1, 2):
        if len(log) <= back:
            break
        last = log[-back:]
        ours = last[0].nonce is not None and last[0].nonce.startswith(HOLD_NONCE)
        if ours and isinstance(last[-1].body, Paused) and (back == 1 or isinstance(last[0].body, Resumed)):
            return tuple(log[:-back])
    return tuple(log)


def found_task(bundle: Bundle) -> BundleTask | None:
    """The task that drives the run, if the file has it: the one that the envelope's generation names."""
    expected = orchestrate_task_id(bundle.run_id, bundle.envelope.generation)
    return next((task for task in bundle.tasks or () if task.id == expected), None)


def stored_document(bundle: Bundle) -> Document | None:
    """The document in the file, if it is one."""
    try:
        return msgspec.json.decode(bundle.document, type=Document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
