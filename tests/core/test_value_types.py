"""Which types a stored value can have: each comes back as it was; all others are refused when they are declared."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import enum
import fractions
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Any, Generic, Literal, NamedTuple, NewType, TypedDict, TypeVar

import attrs
import msgspec
import pydantic
import pytest

from buoy.core.log.codec import decode, encode
from buoy.core.log.value_types import check_type
from buoy.errors import BadInput

T = TypeVar("T")
UserId = NewType("UserId", int)


class Colour(enum.Enum):
    RED = "red"


class Size(enum.IntEnum):
    SMALL = 1


class Word(enum.StrEnum):
    YES = "yes"


class Bits(enum.Flag):
    A = 1
    B = 2


class Place(NamedTuple):
    x: int
    name: str = "here"


class Options(TypedDict, total=False):
    express: bool


@dataclasses.dataclass(frozen=True)
class Line:
    item: str
    file: Path
    colour: Colour = Colour.RED


@dataclasses.dataclass
class Node:
    value: int
    next: Node | None = None


@dataclasses.dataclass
class Boxed(Generic[T]):
    content: T


@attrs.define
class Point:
    x: int
    y: list[int] = attrs.Factory(list)


class Parcel(msgspec.Struct):
    sent: dt.datetime
    lines: list[Line]


class Cat(msgspec.Struct, tag="cat"):
    name: str


class Dog(msgspec.Struct, tag="dog"):
    name: str


class Address(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    town: str = pydantic.Field(alias="townName")
    since: dt.date
    tags: set[str] = set()


NOON = dt.datetime(2026, 2, 28, 12, 0, tzinfo=dt.UTC)
LINE = Line("lamp", Path("/a/b c"))
ADDRESS = Address(townName="Ulm", since=NOON.date(), tags={"a"})

WORKING: list[tuple[object, Any]] = [
    (None, None),
    (True, bool),
    (-(2**100), int),
    (0.1, float),
    ("ä\x00", str),
    (b"\x00\xff", bytes),
    (bytearray(b"\x00"), bytearray),
    (NOON, dt.datetime),
    (NOON.replace(tzinfo=None), dt.datetime),
    (NOON.date(), dt.date),
    (dt.time(1, 2, 3), dt.time),
    (dt.timedelta(days=1, microseconds=7), dt.timedelta),
    (Decimal("1.10"), Decimal),
    (uuid.UUID(int=5), uuid.UUID),
    (Path("a/b"), Path),
    (PurePosixPath("/x/ä"), PurePosixPath),
    (PureWindowsPath(r"C:\x"), PureWindowsPath),
    ([Path("a")], list[Path]),
    ({"a": Path("b")}, dict[str, Path]),
    (Path("a"), Path | None),
    (None, Path | None),
    (Colour.RED, Colour),
    (Size.SMALL, Size),
    (Word.YES, Word),
    (Bits.A | Bits.B, Bits),
    ("a", Literal["a", 1]),
    (1, Literal["a", 1]),
    (7, UserId),
    ("x", int | str | None),
    (1.5, int | float),
    ([1, None, {"a": 1.5}], Any),
    ([1], object),
    ([1, 2], list[int]),
    ((1, "a"), tuple[int, str]),
    ((1, 2, 3), tuple[int, ...]),
    ({1, 2}, set[int]),
    (frozenset({"a"}), frozenset[str]),
    ({1: "a"}, dict[int, str]),
    ({Colour.RED: 1}, dict[Colour, int]),
    ({NOON.date(): 1}, dict[dt.date, int]),
    ([1], Sequence[int]),
    ({"a": 1}, Mapping[str, int]),
    ([Line("a", Path("b"))], Iterable[Line]),
    (Place(1), Place),
    ({"express": True}, Options),
    (LINE, Line),
    (Node(1, Node(2)), Node),
    (Boxed(Path("a")), Boxed[Path]),
    (Point(1, [2]), Point),
    (Parcel(NOON, [LINE]), Parcel),
    ([Cat("a"), Dog("b")], list[Cat | Dog]),
    (ADDRESS, Address),
    ([ADDRESS], list[Address]),
    (ADDRESS, Address | None),
]


@pytest.mark.parametrize(("value", "kind"), WORKING, ids=[f"{kind!r}-{value!r}"[:60] for value, kind in WORKING])
def test_a_value_comes_back_as_it_was(value: object, kind: Any) -> None:
    check_type(kind, "it")
    found = decode(encode(value, "it"), kind, "it")
    assert found == value
    assert type(found) is type(value)


class Own:
    pass


@dataclasses.dataclass
class HoldsOwn:
    inner: list[Own]


class Mixed(enum.Enum):
    A = 1
    B = "b"


REFUSED = [
    (Own, r"it has the type .*test_value_types\.Own"),
    (list[Own], r"\.Own"),
    (dict[str, tuple[Own, ...]], r"\.Own"),
    (HoldsOwn, r"\.Own"),
    (Own | None, r"\.Own"),
    (complex, r"builtins\.complex"),
    (fractions.Fraction, r"fractions\.Fraction"),
    (collections.deque[int], "deque"),
    (Callable[[int], int], "Callable"),
    (type[int], "type"),
    (Path | str, r"may not contain .*Path \| str"),
    (dt.datetime | str, "more than one str-like type"),
    (list[int] | set[int], "more than one array-like"),
    (Mixed, "Enums must contain either all str or all int"),
    (Literal[b"x"], "Literal may only contain"),
]


@pytest.mark.parametrize(("kind", "expected"), REFUSED, ids=[repr(kind)[:50] for kind, _ in REFUSED])
def test_a_type_that_cannot_be_read_back_is_refused_with_the_types_that_work(kind: Any, expected: str) -> None:
    with pytest.raises(BadInput, match=rf"^parameter 'a' of step s cannot be stored as JSON: .*{expected}") as refused:
        check_type(kind, "parameter 'a' of step s")
    assert refused.match(r"; use bool, int, .* dataclass, .*pydantic model")


def test_a_path_is_stored_as_its_text() -> None:
    assert bytes(encode({"p": PurePath("a/b")}, "it")) == b'{"p":"a/b"}'
    with pytest.raises(BadInput, match="the input does not fit: Expected `str`, got `int`"):
        decode(b"5", Path, "the input")


def test_a_model_is_read_by_the_names_of_its_fields_and_by_its_aliases() -> None:
    assert decode(b'{"townName":"Ulm","since":"2026-02-28","tags":["a"]}', Address, "it") == ADDRESS
    assert decode(b'{"town":"Ulm","since":"2026-02-28","tags":["a"]}', Address, "it") == ADDRESS


@dataclasses.dataclass
class Strange:
    """A type whose own code raises what it likes."""

    x: int

    def __post_init__(self) -> None:
        raise [RuntimeError("unlucky"), KeyError("gone"), ValueError("no"), KeyboardInterrupt(), SystemExit(3)][self.x]


@pytest.mark.parametrize(
    ("number", "expected"),
    [(0, "RuntimeError: unlucky"), (1, "KeyError: 'gone'"), (2, "no"), (3, "KeyboardInterrupt"), (4, "SystemExit: 3")],
)
def test_whatever_a_type_raises_is_a_refusal_that_tells_it(number: int, expected: str) -> None:
    with pytest.raises(BadInput, match=f"^the input .*{expected}") as refused:
        decode(f'{{"x":{number}}}'.encode(), Strange, "the input")
    assert refused.value.__cause__ is not None
