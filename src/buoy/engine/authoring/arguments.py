"""Arguments: a function's parameters as JSON and back, by its type hints.

Invariants: a body always gets the stored values, never the caller's own objects. So the first execution and one after a
crash see the same values. An argument that the caller leaves out is stored with its default, so a changed default does
not change earlier calls.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Collection, Container, Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any, Never, NoReturn, Self

import msgspec

from buoy.core.ids import RunId
from buoy.core.limits import PAYLOAD_BYTES_MAX
from buoy.core.log import codec
from buoy.core.log.value_types import check_type, dec_hook
from buoy.errors import BadInput, NotJson, TooLarge

_EMPTY = inspect.Parameter.empty
_SPREAD = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Arguments:
    """The parameters of one step or workflow."""

    def __init__(self, fn: Callable[..., Any], owner: str) -> None:
        self._fn = fn
        self._owner = owner
        self._what = f"the arguments of {owner}"
        self._signature = inspect.signature(fn)
        parameters = list(self._signature.parameters.values())
        self._names = tuple(p.name for p in parameters)
        self._plain = all(p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for p in parameters)
        self._all_given = self._plain and all(p.default is _EMPTY for p in parameters)
        # Where every call gives all of them by position. A dict instead of a struct costs a sequential step 16 % more
        # processor time (`benchmarks/speed_tricks.py`).
        simple = self._plain and not any(name.startswith("__") for name in self._names)
        self._given = msgspec.defstruct("given", self._names, gc=False) if simple else None
        self._hints: dict[str, Any] | None = None
        self._decoder: msgspec.json.Decoder[Any] | None = None
        # Paused runs whose input was seen not to fit: it does not change, and is read once.
        self.unfit_runs: set[RunId] = set()
        self._checked = False

    def checked(self) -> Self:
        """Refuses types that cannot be stored. Hints may name what comes later: then the first call checks."""
        with suppress(NameError):
            self._check_types()
        return self

    def _check_called(self) -> None:
        try:
            self._check_types()
        except NameError as error:
            raise BadInput(
                f"the type hints of {self._owner} cannot be read: {error}; import or define it at module level"
            ) from error

    def _check_types(self) -> None:
        hints = self._hints = self._read_hints()
        for parameter in self._signature.parameters.values():
            # One with a default need not be given: it may be there for a test that hands in an object of its own.
            if parameter.name in hints and parameter.default is _EMPTY:
                check_type(hints[parameter.name], f"parameter {parameter.name!r} of {self._owner}")
        check_type(self.returns, f"the result of {self._owner}")
        self._checked = True

    def _read_hints(self) -> dict[str, Any]:
        try:
            return typing.get_type_hints(self._fn)
        except TypeError as error:
            raise BadInput(f"the type hints of {self._owner} cannot be read: {error}") from error

    @property
    def names(self) -> tuple[str, ...]:
        return self._names

    @property
    def required(self) -> tuple[str, ...]:
        """The parameters that have no default."""
        parameters = self._signature.parameters.values()
        return tuple(p.name for p in parameters if p.default is _EMPTY and p.kind not in _SPREAD)

    @property
    def signature(self) -> inspect.Signature:
        return self._signature

    @cached_property
    def returns(self) -> Any:
        """The declared type of the result; Any if none is declared, or if it never comes."""
        found = self.hints.get("return", Any)
        return Any if found is NoReturn or found is Never else found

    @cached_property
    def read_result(self) -> Callable[[msgspec.Raw], Any]:
        """Reads a stored result. Raises whatever the types of its user raise."""
        return msgspec.json.Decoder(self.returns, dec_hook=dec_hook).decode

    @property
    def hints(self) -> dict[str, Any]:
        if self._hints is None:
            self._check_called()
        assert self._hints is not None
        return self._hints

    def encode(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> msgspec.Raw:
        """The call's arguments by name, as stored."""
        return self.encode_call(args, kwargs)[0]

    def encode_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[msgspec.Raw, Collection[str]]:
        """The call's arguments by name, as stored, and which of them the caller left to their defaults."""
        if not self._checked:
            self._check_called()
        if self._given is not None and not kwargs and len(args) == len(self._names):
            # All four by position: Python calls it more quickly so, and every call of a step comes by here.
            return codec.encode(self._given(*args), self._what, PAYLOAD_BYTES_MAX, "pass"), ()
        try:
            named = dict(self._signature.bind(*args, **kwargs).arguments)
        except TypeError as error:
            raise BadInput(f"invalid arguments for {self._owner}: {error}; it takes {self._signature}") from error
        left_out = self._left_out(named)
        return codec.encode({**named, **left_out}, self._what, verb="pass"), left_out.keys()

    def completed(self, raw: msgspec.Raw) -> msgspec.Raw:
        """Stored arguments with the defaults of those that were left out."""
        if not self.defaults:
            return raw
        named: dict[str, msgspec.Raw] = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        left_out = self._left_out(named)
        return codec.encode({**named, **left_out}, self._what, verb="pass") if left_out else raw

    def _left_out(self, named: Container[str]) -> dict[str, msgspec.Raw]:
        return {name: raw for name, raw in self.defaults.items() if name not in named}

    @cached_property
    def defaults(self) -> dict[str, msgspec.Raw]:
        """The defaults that can be stored. Another one (a marker object, say) is the code's own matter."""
        found: dict[str, msgspec.Raw] = {}
        for parameter in self._signature.parameters.values():
            if parameter.default is _EMPTY:
                continue
            with suppress(NotJson, TooLarge, BadInput):
                raw = codec.encode(parameter.default, self._what)
                codec.decode(raw, self.hints.get(parameter.name, Any), self._what)
                found[parameter.name] = raw
        return found

    def decode(self, raw: msgspec.Raw) -> tuple[list[Any], dict[str, Any]]:
        """The stored arguments, typed, ready for the call."""
        if self._decoder is None:
            self._decoder = self._make_decoder()
        try:
            found = self._decoder.decode(raw)
        except BaseException as error:  # a type of the user's own may raise anything at all
            raise BadInput(
                f"invalid arguments for {self._owner}: {self._misfit(raw, error)}; it takes {self._signature}"
            ) from error
        if self._all_given:
            return list(msgspec.structs.astuple(found)), {}
        return self._spread(found)

    def fit(self, raw: msgspec.Raw) -> bool:
        """Whether these stored arguments can be decoded."""
        try:
            self.decode(raw)
        except BadInput:
            return False
        return True

    def _misfit(self, raw: msgspec.Raw, error: BaseException) -> str:
        """What is wrong, with the parameter's name. Only msgspec's own errors say where they come from."""
        try:
            given = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        except msgspec.MsgspecError as no_object:
            return str(no_object)
        if isinstance(error, msgspec.MsgspecError):
            return self._wrong_names(given) or str(error)
        for name, value in given.items():
            try:
                codec.decode(value, self.hints.get(name, Any), f"{name!r}")
            except BadInput as misfit:
                return str(misfit)
        return f"{type(error).__name__}: {error}"

    def _wrong_names(self, given: Mapping[str, object]) -> str:
        """All names that are missing, or that are none of the parameters."""
        taken = self._signature.parameters
        spread = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        needed = [each.name for each in taken.values() if each.default is _EMPTY and each.kind not in spread]
        missing = ", ".join(f"`{name}`" for name in needed if name not in given)
        unknown = ", ".join(f"`{name[:60]}`" for name in given if name not in taken)
        return "; ".join(filter(None, (missing and f"missing {missing}", unknown and f"unknown {unknown}")))

    def _make_decoder(self) -> msgspec.json.Decoder[Any]:
        fields: list[Any] = []
        for parameter in self._signature.parameters.values():
            kind: Any = self.hints.get(parameter.name, Any)
            if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                fields.append((parameter.name, list.__class_getitem__(kind), msgspec.field(default_factory=list)))
            elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
                fields.append(
                    (parameter.name, dict.__class_getitem__((str, kind)), msgspec.field(default_factory=dict))
                )
            elif parameter.default is _EMPTY:
                fields.append((parameter.name, kind))
            else:
                fields.append((parameter.name, kind | msgspec.UnsetType, msgspec.UNSET))
        try:
            shape = msgspec.defstruct("arguments", fields, kw_only=True, forbid_unknown_fields=True)
            return msgspec.json.Decoder(shape, dec_hook=dec_hook)
        except TypeError as error:
            raise BadInput(f"{self._owner}: a parameter cannot be stored as JSON: {error}") from error

    def _spread(self, found: Any) -> tuple[list[Any], dict[str, Any]]:
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for parameter in self._signature.parameters.values():
            value = getattr(found, parameter.name)
            if value is msgspec.UNSET:
                continue
            match parameter.kind:
                case inspect.Parameter.VAR_POSITIONAL:
                    args.extend(value)
                case inspect.Parameter.VAR_KEYWORD:
                    kwargs.update(value)
                case inspect.Parameter.KEYWORD_ONLY:
                    kwargs[parameter.name] = value
                case inspect.Parameter.POSITIONAL_ONLY:
                    args.append(value)
                case _ if self._has_spread:
                    args.append(value)
                case _:
                    kwargs[parameter.name] = value
        return args, kwargs

    @property
    def _has_spread(self) -> bool:
        """With *args the ones before it must be given by position."""
        return any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in self._signature.parameters.values())


def same_call(there: msgspec.Raw, here: msgspec.Raw, left_out: Collection[str] = ()) -> bool:
    """Whether the log has the arguments of the code. What the code leaves to its default is not compared."""
    if there == here:
        return True
    logged, given = msgspec.json.decode(there), msgspec.json.decode(here)
    if left_out and isinstance(logged, dict) and isinstance(given, dict):
        logged = {**logged, **{name: given[name] for name in left_out}}
    return bool(logged == given)
