"""Value types: which Python types a stored value can have, and how the unusual ones are written and read.

Invariants: a type is refused when it is declared, not when a value of it is lost; no type is stored by pickle.
Absent on purpose: importing pydantic or pathlib (the core does no I/O). Their types are recognised by their looks.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import msgspec

from buoy.errors import BadInput

WORKING = (
    "bool, int, float, str, bytes, Decimal, UUID, datetime, date, time, timedelta, Path, Enum, Literal, "
    "dataclass, attrs class, msgspec.Struct, pydantic model, NamedTuple, TypedDict, Any; "
    "list, tuple, set, frozenset, dict, Sequence, Mapping and Iterable of these; `X | None`"
)


def check_type(kind: Any, what: str) -> None:
    """Refuses a type that no value can be read back as, with the types that work. `NameError`: it is not there yet."""
    try:
        found = msgspec.inspect.type_info(kind)
    except TypeError as error:
        raise BadInput(f"{what} cannot be stored as JSON: {error}; use {WORKING}") from error
    for custom in _custom_types(found):
        if not _readable(custom):
            raise BadInput(f"{what} cannot be stored as JSON: it has the type {_name(custom)}; use {WORKING}")


def _custom_types(found: msgspec.inspect.Type) -> Iterator[Any]:
    """The types within a type that msgspec leaves to us."""
    left: list[object] = [found]
    seen: set[int] = set()
    while left:
        item = left.pop()
        if isinstance(item, tuple | list):
            left.extend(item)
        elif isinstance(item, msgspec.inspect.CustomType):
            yield item.cls
        elif isinstance(item, msgspec.Struct) and id(item) not in seen:
            seen.add(id(item))
            left.extend(getattr(item, name) for name in item.__struct_fields__)


def _readable(kind: Any) -> bool:
    return kind is object or _is_iterable(kind) or _is_path(kind) or _is_model(kind)


def _is_path(kind: Any) -> bool:
    return isinstance(kind, type) and any(
        base.__name__ == "PurePath" and base.__module__.partition(".")[0] == "pathlib" for base in kind.__mro__
    )


def _is_model(kind: Any) -> bool:
    return callable(getattr(kind, "model_validate_json", None))


def _is_iterable(kind: Any) -> bool:
    return kind is Iterable or typing.get_origin(kind) is Iterable


def _name(kind: Any) -> str:
    return f"{kind.__module__}.{kind.__qualname__}" if isinstance(kind, type) else repr(kind)


def enc_hook(value: object) -> object:
    """How to write what the encoder does not know."""
    if hasattr(value, "__await__"):
        # A call of a step in a `def` workflow has its own advice: there, `await` is a syntax error.
        advice = getattr(value, "unawaited_advice", "write `await` before it")
        raise NotImplementedError(f"it holds a call that was not awaited; {advice}")
    dump = getattr(value, "model_dump", None)  # pydantic models, without importing pydantic
    if callable(dump):
        return dump(mode="json")
    if _is_path(type(value)):
        return str(value)
    # Plain containers are written without asking here, unless they stand where JSON wants a text.
    place = " as a key" if isinstance(value, tuple | frozenset) else ""
    raise NotImplementedError(f"{_name(type(value))} has no JSON form{place}")


def dec_hook(kind: Any, value: object) -> object:
    """How to read what the decoder does not know."""
    if kind is object:
        return value  # "anything", in the words of a type checker
    if _is_path(kind):
        if not isinstance(value, str):
            raise ValueError(f"Expected `str`, got `{type(value).__name__}`")
        return kind(value)
    if _is_iterable(kind):
        (each,) = typing.get_args(kind) or (Any,)
        return msgspec.convert(value, list.__class_getitem__(each), dec_hook=dec_hook)
    if _is_model(kind):
        return _model(kind, value)
    raise NotImplementedError(_name(kind))


def _model(kind: Any, value: object) -> object:
    try:
        # As JSON, since it was written as JSON: strict models take a text for a date only then.
        return kind.model_validate_json(msgspec.json.encode(value), **_naming(kind))
    except ValueError as error:
        details = getattr(error, "errors", None)  # pydantic's own, whose text has several lines and a link
        if not callable(details):
            raise
        found = [(".".join(map(str, each["loc"])), each["msg"]) for each in details(include_url=False)]
        raise ValueError("; ".join(": ".join(filter(None, each)) for each in found)) from error


@lru_cache(maxsize=256)
def _naming(model: Any) -> dict[str, bool]:
    """Fields are written under their names, so those are accepted beside aliases, where pydantic can (2.11)."""
    accepted = inspect.signature(model.model_validate_json).parameters
    return {"by_alias": True, "by_name": True} if "by_name" in accepted else {}
