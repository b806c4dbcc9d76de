"""Storable: proves before an event is recorded that it can be read back.

Invariant: `check_body` accepts a body only if its stored bytes decode to the same body. One unreadable event would make
the whole log unreadable, for every command and for every later process.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from buoy.core.limits import ERROR_TEXT_CHARS_MAX, EVENT_BYTES_MAX, NESTING_MAX
from buoy.core.log.codec import encode_plain, has_non_finite, nested_too_deeply
from buoy.core.log.events import BODIES, Body, Payload, event_name
from buoy.errors import NotJson, TooLarge

_DECODERS: dict[type[Payload], msgspec.json.Decoder[Any]] = {kind: msgspec.json.Decoder(kind) for kind in BODIES}
# How far the search for a bad field goes down. A value that contains itself has no bottom.
_SEARCH_DEPTH = 12


def check_body(body: Body) -> bytes:
    """The body's stored bytes, which decode to the same body; or a refusal that names the field."""
    try:
        data = encode_plain(body)
        again = _DECODERS[type(body)].decode(data)
    except Exception as error:
        raise NotJson(_refusal(body, _reason(body, error))) from error
    if len(data) > EVENT_BYTES_MAX:
        raise TooLarge(_refusal(body, f"it has {len(data):,} bytes, the limit is {EVENT_BYTES_MAX:,}"))
    if len(data) > 2 * NESTING_MAX and nested_too_deeply(data):
        raise NotJson(_refusal(body, f"it is nested more than {NESTING_MAX} deep"))
    if again != body:
        _check_same(body, again)
    return data


def _check_same(body: Body, again: Body) -> None:
    """A list that comes back as a tuple is the same JSON. A NaN that comes back as nothing is not."""
    fields = [(name, getattr(body, name), getattr(again, name)) for name in body.__struct_fields__]
    differing = [name for name, given, read in fields if given != read and not _same_json(given, read)]
    if differing:
        raise NotJson(_refusal(body, f"{', '.join(differing)} would be read back as another value"))


def _same_json(given: object, read: object) -> bool:
    try:
        same: bool = msgspec.json.decode(encode_plain(given)) == msgspec.json.decode(encode_plain(read))
    except msgspec.DecodeError:  # raw JSON that is sound only within the text around it
        return False
    return same and not has_non_finite(given)


def _refusal(body: Body, reason: str) -> str:
    return f"event {event_name(type(body))} cannot be stored: {reason}"


def _reason(body: Body, error: Exception) -> str:
    """Decoding errors say where; encoding errors do not, so the field is searched."""
    if isinstance(error, msgspec.DecodeError):
        return str(error)
    return f"{_bad_field(body)}: {error}"


def _bad_field(body: Body) -> str:
    value: object = body
    path = ""
    for _ in range(_SEARCH_DEPTH):
        bad = next(((name, each) for name, each in _parts(value) if not _encodes(each)), None)
        if bad is None:
            break
        path, value = f"{path}.{bad[0]}" if path else bad[0], bad[1]
    return path or "the event"


def _parts(value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield name, getattr(value, name)
    elif isinstance(value, dict):
        for key, each in value.items():
            yield f"key {key!r}", key
            yield f"{key}", each
    elif isinstance(value, list | tuple):
        for place, each in enumerate(value):
            yield str(place), each


def _encodes(value: object) -> bool:
    try:
        encode_plain(value)
    except Exception:  # noqa: BLE001 - the caller reports the error; this only finds its place
        return False
    return True


def storable_text(text: str, chars_max: int = ERROR_TEXT_CHARS_MAX) -> str:
    """Text for people, from anywhere, as the log can keep it: cut, and lone surrogates written out as `\\udce9`."""
    text = text[:chars_max]
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
