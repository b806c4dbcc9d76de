"""Codec: values and events to JSON bytes and back.

Invariants: never pickle; what is written is read back the same (live and replayed values take the same way through
`encode` and `decode`); stored events of older versions are upcast, events of unknown name are refused by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from buoy.core.events import BODIES, NULL, VERSIONS, Event, event_name
from buoy.core.limits import PAYLOAD_BYTES_MAX
from buoy.errors import BadInput, CorruptLog, NotJson, TooLarge

_SCALARS = frozenset({type(None), bool, int, str})
_KNOWN = frozenset(event_name(body) for body in BODIES)

# (name, version) -> a function from the stored payload of that version to the payload of the next one.
Upcasts = dict[tuple[str, int], Callable[[dict[str, Any]], dict[str, Any]]]
UPCASTS: Upcasts = {}


def _enc_hook(value: object) -> object:
    dump = getattr(value, "model_dump", None)  # pydantic models, without importing pydantic
    if callable(dump):
        return dump(mode="json")
    raise NotImplementedError(f"{type(value).__module__}.{type(value).__qualname__}")


def _dec_hook(kind: type, value: object) -> object:
    validate = getattr(kind, "model_validate", None)
    if callable(validate):
        return validate(value)
    raise NotImplementedError(f"{kind.__module__}.{kind.__qualname__}")


_ENCODER = msgspec.json.Encoder(enc_hook=_enc_hook)
_EVENTS_DECODER = msgspec.json.Decoder(list[Event])


def encode(value: object, what: str, limit: int = PAYLOAD_BYTES_MAX) -> msgspec.Raw:
    """The value as JSON, or a refusal that names it."""
    if value is None:
        return NULL
    try:
        data = _ENCODER.encode(value)
    except (NotImplementedError, TypeError, OverflowError, ValueError, RecursionError) as error:
        raise NotJson(
            f"{what} cannot be stored as JSON: {error}; return plain data, a dataclass or a struct"
        ) from error
    if len(data) > limit:
        raise TooLarge(
            f"{what} has {len(data):,} bytes, the limit is {limit:,}; store it elsewhere and pass a reference"
        )
    # The encoder writes NaN and infinity as null, which would come back as something else.
    if b"null" in data and _has_non_finite(value):
        raise NotJson(f"{what} cannot be stored as JSON: it holds NaN or infinity")
    return msgspec.Raw(data)


def _has_non_finite(value: object, depth: int = 0) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if depth > 64:
        return False
    if isinstance(value, dict):
        return any(_has_non_finite(item, depth + 1) for item in value.values())
    if isinstance(value, list | tuple | set | frozenset):
        return any(_has_non_finite(item, depth + 1) for item in value)
    if hasattr(type(value), "__struct_fields__") or hasattr(type(value), "__dataclass_fields__"):
        names = getattr(type(value), "__struct_fields__", ()) or getattr(type(value), "__dataclass_fields__", ())
        return any(_has_non_finite(getattr(value, name, None), depth + 1) for name in names)
    return False


def decode(data: msgspec.Raw | bytes, kind: Any, what: str) -> Any:
    """The stored JSON as `kind`, or a refusal that says where they differ."""
    try:
        return msgspec.json.decode(data, type=kind, dec_hook=_dec_hook)
    except msgspec.ValidationError as error:
        raise BadInput(f"{what} does not fit: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{what} is not JSON: {error}") from error


def convert(value: object, kind: Any, what: str) -> Any:
    """A plain JSON value as `kind`, or a refusal that says where they differ."""
    try:
        return msgspec.convert(value, kind, dec_hook=_dec_hook)
    except msgspec.ValidationError as error:
        raise BadInput(f"{what} does not fit: {error}") from error


def same_after_storage(value: object, kind: Any, data: msgspec.Raw) -> Any:
    """The value as a replay will see it. Scalars of the very type that was declared need no second reading."""
    if type(value) in _SCALARS and (kind is Any or kind is type(value) or value is None):
        return value
    return decode(data, kind, "a stored value")


def encode_events(events: Sequence[Event]) -> bytes:
    """One commit's events as stored."""
    return _ENCODER.encode(events)


def decode_events(data: bytes, where: str = "the log") -> list[Event]:
    """Stored events of any known version as today's events."""
    try:
        events = _EVENTS_DECODER.decode(data)
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError):
        return _decode_slowly(data, where)
    if VERSIONS and any(event.v != VERSIONS.get(type(event.body), 1) for event in events):
        return _decode_slowly(data, where)
    return events


def _decode_slowly(data: bytes, where: str) -> list[Event]:
    try:
        items = msgspec.json.decode(data, type=list[dict[str, Any]])
        return [msgspec.convert(_upcast(item, where), Event, strict=True) for item in items]
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptLog(f"{where} cannot be read: {error}") from error


def _upcast(item: dict[str, Any], where: str) -> dict[str, Any]:
    found = item.get("body")
    body: dict[str, Any] = found if isinstance(found, dict) else {}
    name = body.get("type")
    if name not in _KNOWN:
        raise CorruptLog(
            f"{where}: event {item.get('seq')} is {name!r}, which this version of Buoy does not know; "
            "a newer Buoy wrote it: upgrade this one"
        )
    version = item.get("v", 1)
    while (name, version) in UPCASTS:
        body = UPCASTS[name, version](body)
        version += 1
    # Payloads hold raw JSON; conversion from parsed values needs it back as bytes.
    return {**item, "v": version, "body": _raw_again(name, body)}


def _raw_again(name: str, body: dict[str, Any]) -> dict[str, Any]:
    kind = next(each for each in BODIES if event_name(each) == name)
    raw = {field.encode_name for field in msgspec.structs.fields(kind) if "Raw" in str(field.type)}
    return {key: msgspec.Raw(_ENCODER.encode(value)) if key in raw else value for key, value in body.items()}
