"""RPC: the calls of a store as JSON, for a store that is reached over a network. Both halves use this table.

Invariants: the table is read off the `Store` protocol, so that neither half can miss a call. Arguments and results are
the records of the port; unknown fields are ignored, so that a newer half may add some. Events travel in their stored
form, with the version of each payload, and are upcast where they arrive.
Absent on purpose: HTTP. The client half is `stores/http`, the server half `web/store_api`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, get_type_hints

import msgspec

from buoy import errors
from buoy.core.ids import RunId
from buoy.core.log import codec
from buoy.core.log.document import Document
from buoy.core.log.events import Event
from buoy.ports.maintenance import PARTS, IndexTrouble, IntegrityChecks, RunCopy, TaskFound
from buoy.ports.records import Broken, Committed, FencedOut, Message, Outcome, TaskChange, Write
from buoy.ports.store import Store

PATH = "/store/v1/"
# Of one store object. Changes have a message of their own, since each client remembers the last change that it saw.
_LOCAL = frozenset({"close", "reopen", "wait_for_change"})


class WireWrite(msgspec.Struct, frozen=True, omit_defaults=True):
    """A `Write` whose events are in their stored form."""

    run_id: RunId
    after_seq: int
    events: msgspec.Raw
    document: Document
    task: TaskChange | None = None
    seen: int = 0


class WireOutcome(msgspec.Struct, frozen=True):
    """An `Outcome`; a field names its kind."""

    committed: bool
    head_seq: int


class WireCopy(msgspec.Struct, frozen=True, kw_only=True):
    """A `RunCopy` whose events are in their stored form."""

    id: str
    document: Document
    events: msgspec.Raw
    messages: tuple[Message, ...] = ()
    generation: int = 1
    found: TaskFound | None = None


class Hello(msgspec.Struct, frozen=True):
    """What a client must know about the store behind a server. `age_s`: how long this server has been up."""

    name: str
    version: int
    age_s: float
    buoy_version: str = ""


class Look(msgspec.Struct, frozen=True):
    """Asks to be answered when something may have changed after `cursor`, or when the time is over."""

    cursor: int
    timeout_s: float


class Seen(msgspec.Struct, frozen=True):
    """How often something has changed while this server has been up. Never 0."""

    cursor: int


class Reply(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer to a call. `met`: what the store behind the server could not read."""

    result: msgspec.Raw
    met: tuple[Broken, ...] = ()


class Failed(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call that raised one of Buoy's own errors, named by its class."""

    error: str
    message: str


class _Form(NamedTuple):
    """How a type of the port travels, if not as it is."""

    wire: Any
    pack: Callable[[Any], Any]
    unpack: Callable[[Any], Any]


def _pack_events(events: Sequence[Event]) -> msgspec.Raw:
    return msgspec.Raw(codec.encode_events(events))


def _unpack_events(raw: msgspec.Raw) -> list[Event]:
    return codec.decode_events(bytes(raw), "events from the network")


def _pack_write(write: Write) -> WireWrite:
    return WireWrite(write.run_id, write.after_seq, _pack_events(write.events), write.document, write.task, write.seen)


def _unpack_write(wire: WireWrite) -> Write:
    events = tuple(_unpack_events(wire.events))
    return Write(wire.run_id, wire.after_seq, events, wire.document, wire.task, wire.seen)


def _pack_outcome(outcome: Outcome | None) -> WireOutcome | None:
    return None if outcome is None else WireOutcome(isinstance(outcome, Committed), outcome.head_seq)


def _unpack_outcome(wire: WireOutcome | None) -> Outcome | None:
    if wire is None:
        return None
    return Committed(wire.head_seq) if wire.committed else FencedOut(wire.head_seq)


def _pack_copy(copy: RunCopy) -> WireCopy:
    events = _pack_events(copy.events)
    return WireCopy(
        id=copy.id, document=copy.document, events=events,
        messages=copy.messages, generation=copy.generation, found=copy.found,
    )  # fmt: skip


def _unpack_copy(wire: WireCopy) -> RunCopy:
    return RunCopy(
        id=wire.id, document=wire.document, events=tuple(_unpack_events(wire.events)),
        messages=wire.messages, generation=wire.generation, found=wire.found,
    )  # fmt: skip


def _each(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda items: [function(item) for item in items]


_OUTCOMES = _Form(list[WireOutcome | None], _each(_pack_outcome), _each(_unpack_outcome))
# By the annotation that is in the port.
_FORMS: tuple[tuple[Any, _Form], ...] = (
    (Sequence[Write], _Form(list[WireWrite], _each(_pack_write), _each(_unpack_write))),
    (list[Event], _Form(msgspec.Raw, _pack_events, _unpack_events)),
    (list[Outcome], _OUTCOMES),
    (list[Outcome | None], _OUTCOMES),
    (RunCopy, _Form(WireCopy, _pack_copy, _unpack_copy)),
)


def _same(value: Any) -> Any:
    return value


def _form(kind: Any) -> _Form:
    return next((form for known, form in _FORMS if known == kind), _Form(kind, _same, _same))


class Call:
    """One call of a store: how its arguments and its result travel."""

    def __init__(self, part: str, name: str, function: Callable[..., Any], result: Any = msgspec.UNSET) -> None:
        self.part = part
        self.method = name
        self.name = f"{part}.{name}" if part else name
        hints = get_type_hints(function)
        self._result = _form(hints["return"] if result is msgspec.UNSET else result)
        self._forms = {parameter: _form(kind) for parameter, kind in hints.items() if parameter != "return"}
        parameters = inspect.signature(function).parameters
        fields = [
            (key, form.wire) if parameters[key].default is inspect.Parameter.empty
            else (key, form.wire, parameters[key].default)
            for key, form in self._forms.items()
        ]  # fmt: skip
        struct = msgspec.defstruct(f"Call_{part}_{name}", fields, frozen=True, kw_only=True)
        self._arguments: msgspec.json.Decoder[Any] = msgspec.json.Decoder(struct)
        self._reply: msgspec.json.Decoder[Any] = msgspec.json.Decoder(self._result.wire)

    def encode_arguments(self, arguments: dict[str, Any]) -> bytes:
        return msgspec.json.encode({key: self._forms[key].pack(value) for key, value in arguments.items()})

    def decode_arguments(self, data: bytes) -> dict[str, Any]:
        """Raises `BadInput` if they have not the form of this call."""
        try:
            found = self._arguments.decode(data or b"{}")
            return {key: form.unpack(getattr(found, key)) for key, form in self._forms.items()}
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise errors.BadInput(f"the arguments of {self.name} have the wrong form: {error}") from error

    def encode_result(self, result: Any) -> msgspec.Raw:
        return msgspec.Raw(msgspec.json.encode(self._result.pack(result)))

    def decode_result(self, data: bytes | msgspec.Raw) -> Any:
        return self._result.unpack(self._reply.decode(data))


def _calls() -> dict[str, Call]:
    found = [Call("", name, each) for name, each in inspect.getmembers(Store, inspect.iscoroutinefunction)]
    for part, protocol in PARTS.items():
        found += [Call(part, name, each) for name, each in inspect.getmembers(protocol, inspect.iscoroutinefunction)]
    # An async iterator in the port; over the network all that it finds at once.
    found.append(Call("integrity", "index_troubles", IntegrityChecks.index_troubles, list[IndexTrouble]))
    return {call.name: call for call in found if call.name not in _LOCAL}


CALLS = _calls()
# Calls that change nothing, for callers that may only look. `hello` and `changes` are messages of the protocol itself.
READS = frozenset({
    "hello", "changes", "now", "run", "events", "find_runs", "counts", "moved", "run_ids", "inbox", "runners",
    "unregistered", "definition", "landed", "archive.tombstone", "archive.tombstones", "archive.remains",
    "integrity.refusal", "schedules.schedules", "schedules.broken",
})  # fmt: skip
# What a client raises again by its class. Any other failure of a server is `Unavailable`: the outcome is unclear.
ERRORS: dict[str, type[errors.Problem]] = {
    each.__name__: each
    for each in (
        errors.UnknownWorkflow,
        errors.UnknownRun,
        errors.UnknownQuestion,
        errors.BadInput,
        errors.NotJson,
        errors.TooLarge,
        errors.WrongState,
        errors.InboxFull,
        errors.NotAllowedHere,
        errors.Fenced,
        errors.Unavailable,
        errors.NotWritten,
        errors.StoreUnusable,
        errors.StoreLost,
        errors.CorruptLog,
    )
}


def error_name(error: errors.Problem) -> str:
    """The nearest class that a client knows."""
    return next((each.__name__ for each in type(error).__mro__ if each.__name__ in ERRORS), "Unavailable")
