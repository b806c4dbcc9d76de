"""Codec: values and events to JSON bytes and back.

Invariants: never pickle; what is written is read back the same (live and replayed values take the same way through
`encode` and `decode`); stored events of older versions are upcast, events of unknown name are refused by name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from buoy.core.limits import NESTING_MAX, PAYLOAD_BYTES_MAX
from buoy.core.log.events import BODIES, NULL, VERSIONS, Event, Payload, event_name
from buoy.core.log.upcasts import UPCASTS
from buoy.core.log.value_types import dec_hook, enc_hook
from buoy.errors import BadInput, CorruptLog, NotJson, TooLarge

_SCALARS = frozenset({type(None), bool, int, str})
# Of a JSON text without escapes they leave the brackets and the quotes; all brackets look alike.
_ALIKE = bytes.maketrans(b"{}", b"[]")
_OTHERS = bytes(byte for byte in range(256) if byte not in b'[]{}"')
_ESCAPE = re.compile(rb"\\.")
_TEXT = re.compile(rb'"[^"]*"')
_KNOWN: dict[str, type[Payload]] = {event_name(body): body for body in BODIES}

_ENCODER = msgspec.json.Encoder(enc_hook=enc_hook)
_EVENTS_DECODER = msgspec.json.Decoder(list[Event])


def encode(value: object, what: str, limit: int = PAYLOAD_BYTES_MAX, verb: str = "return") -> msgspec.Raw:
    """The value as JSON, or a refusal that names it. `verb`: what the caller does with it, for the advice."""
    if value is None:
        return NULL
    try:
        data = _ENCODER.encode(value)
    except Exception as error:
        raise NotJson(
            f"{what} cannot be stored as JSON: {error}; {verb} plain data, a dataclass or a struct"
        ) from error
    if len(data) > limit:
        raise TooLarge(
            f"{what} has {len(data):,} bytes, the limit is {limit:,}; store it elsewhere and pass a reference"
        )
    # A shorter text cannot be nested so deeply: most values need no closer look, and this is called twice per step.
    if len(data) > 2 * NESTING_MAX and nested_too_deeply(data):
        raise NotJson(f"{what} cannot be stored as JSON: it is nested more than {NESTING_MAX} deep; flatten it")
    # The encoder writes NaN and infinity as null, which would come back as something else.
    # (`in` would first try to read the word as a number, and make an error of that each time.)
    if data.find(b"null") >= 0 and has_non_finite(value):
        raise NotJson(f"{what} cannot be stored as JSON: it holds NaN or infinity")
    return msgspec.Raw(data)


def nested_too_deeply(data: bytes) -> bool:
    """Whether a JSON text is nested so deeply that a reader with a fuller stack than ours might not read it."""
    if len(data) <= 2 * NESTING_MAX or data.count(b"[") + data.count(b"{") <= NESTING_MAX:
        return False
    left = _ESCAPE.sub(b"", data) if b"\\" in data else data
    left = _TEXT.sub(b"", left.translate(_ALIKE, _OTHERS).replace(b'""', b""))
    for _ in range(NESTING_MAX):
        if not left:
            return False
        left = left.replace(b"[]", b"")  # one level
    return bool(left)


def encode_plain(value: object) -> bytes:
    """The value as JSON, by the encoder that writes events."""
    return _ENCODER.encode(value)


def has_non_finite(value: object) -> bool:
    """Whether it holds NaN or infinity.

    Looks at the plain form, so that no kind of object can hide one; a stack, since data may be nested deeply.
    """
    left = [msgspec.to_builtins(value, str_keys=True, enc_hook=_plain_hook)]
    while left:
        item = left.pop()
        if isinstance(item, float) and not math.isfinite(item):
            return True
        if isinstance(item, dict):
            left.extend(item.values())
        elif isinstance(item, list | tuple | set | frozenset):
            left.extend(item)
    return False


def _plain_hook(value: object) -> object:
    return None if isinstance(value, msgspec.Raw) else enc_hook(value)


@lru_cache(maxsize=256)
def _known_decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """A replay reads many results of few types: a decoder is made once for each."""
    return msgspec.json.Decoder(kind, dec_hook=dec_hook)


def decode(data: msgspec.Raw | bytes, kind: Any, what: str) -> Any:
    """The stored JSON as `kind`, or a refusal that says where they differ."""
    try:
        try:
            decoder = _known_decoder(kind)
        except TypeError:
            # Annotations may hold what has no hash; and `Decoder` itself refuses what is no type at all.
            decoder = msgspec.json.Decoder(kind, dec_hook=dec_hook)
        return decoder.decode(data)
    except BaseException as error:
        raise BadInput(f"{what} {misfit(error, kind)}") from error


def convert(value: object, kind: Any, what: str) -> Any:
    """A plain JSON value as `kind`, or a refusal that says where they differ."""
    try:
        return msgspec.convert(value, kind, dec_hook=dec_hook)
    except BaseException as error:
        raise BadInput(f"{what} {misfit(error, kind)}") from error


def misfit(error: BaseException, kind: Any) -> str:
    """Why stored JSON cannot be read as `kind`. Types may be the user's own, whose code may raise anything at all."""
    if isinstance(error, msgspec.ValidationError):
        return f"does not fit: {error}"
    if isinstance(error, msgspec.DecodeError | UnicodeDecodeError):
        return f"is not JSON: {error}"
    if isinstance(error, NotImplementedError | TypeError | RecursionError):
        return f"cannot be read as {kind!r}: {error}"
    return f"cannot be read as {kind!r}: {type(error).__name__}: {error}"


def same_after_storage(value: object, kind: Any, data: msgspec.Raw, what: str = "a stored value") -> Any:
    """The value as a replay will see it. Scalars of exactly the type that was declared need no second reading."""
    if type(value) in _SCALARS and (kind is Any or kind is type(value)):
        return value
    return decode(data, kind, what)


def encode_events(events: Sequence[Event]) -> bytes:
    """One commit's events as stored, each with the version of its payload."""
    for event in events:
        if type(event.body) in VERSIONS:
            events = [msgspec.structs.replace(event, v=VERSIONS.get(type(event.body), 1)) for event in events]
            break
    return _ENCODER.encode(events)


def decode_events(data: bytes, where: str = "the log") -> list[Event]:
    """Stored events of any known version as today's events."""
    try:
        events = _EVENTS_DECODER.decode(data)
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _decode_slowly(data, where)
    for event in events:
        if event.v != 1 or type(event.body) in VERSIONS:
            return _of_today(events) or _decode_slowly(data, where)
    return events


def _of_today(events: Sequence[Event]) -> list[Event] | None:
    """The events as they are in memory; None: one of them is of another version."""
    if any(event.v != VERSIONS.get(type(event.body), 1) for event in events):
        return None
    return [event if event.v == 1 else msgspec.structs.replace(event, v=1) for event in events]


class _Tag(msgspec.Struct):
    type: str


class _Head(msgspec.Struct):
    """As much of a stored event as shows which one it is."""

    seq: int
    body: _Tag
    v: int = 1


def _decode_slowly(data: bytes, where: str) -> list[Event]:
    """One by one: old events are upcast, the others keep their raw JSON, and a refusal can name its event."""
    place = where
    events: list[Event] = []
    try:
        for item in msgspec.json.decode(data, type=list[msgspec.Raw]):
            place = f"{where}: item {len(events) + 1}"
            head = msgspec.json.decode(item, type=_Head)
            place = f"{where}: event {head.seq}"
            events.append(_decode_one(item, head, place))
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptLog(f"{place} cannot be read: {error}") from error
    return events


def _decode_one(item: msgspec.Raw, head: _Head, place: str) -> Event:
    kind = _KNOWN.get(head.body.type)
    if kind is None:
        raise CorruptLog(
            f"{place} is {head.body.type!r}, which this version of Buoy does not know; "
            "a newer Buoy wrote it: upgrade this one"
        )
    current = VERSIONS.get(kind, 1)
    if head.v == current:
        return msgspec.structs.replace(msgspec.json.decode(item, type=Event), v=1)
    plain: dict[str, Any] = msgspec.json.decode(item)
    body = _upcast(plain["body"], head, current, place)
    return msgspec.convert({**plain, "v": 1, "body": _raw_again(kind, body)}, Event)


def _upcast(body: dict[str, Any], head: _Head, current: int, place: str) -> dict[str, Any]:
    name = head.body.type
    for version in range(head.v, max(current, head.v + 1)):
        step = UPCASTS.get((name, version))
        if step is None:
            raise CorruptLog(
                f"{place} is {name!r} of version {head.v}, this version of Buoy reads up to {current}; "
                "another Buoy wrote it: upgrade this one"
            )
        try:
            body = step(body)
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptLog(f"{place}, {name!r} of version {version}, cannot be upcast: {error!r}") from error
    return body


def _raw_again(kind: type[Payload], body: dict[str, Any]) -> dict[str, Any]:
    """Payloads hold raw JSON; conversion from parsed values needs it back as bytes."""
    raw = {field.encode_name for field in msgspec.structs.fields(kind) if field.type is msgspec.Raw}
    return {key: msgspec.Raw(_ENCODER.encode(value)) if key in raw else value for key, value in body.items()}
