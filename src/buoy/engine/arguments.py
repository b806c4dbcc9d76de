"""Arguments: a function's parameters as JSON and back, by its type hints.

Invariant: a body always gets what was stored, never the caller's own objects, so that a first execution and one after
a crash see the same values.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from functools import cached_property
from typing import Any

import msgspec

from buoy.core import codec
from buoy.errors import BadInput

_SPREAD = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Arguments:
    """The parameters of one step or workflow. Type hints are read at first use: they may name what comes later."""

    def __init__(self, fn: Callable[..., Any], owner: str) -> None:
        self._fn = fn
        self._owner = owner
        self._what = f"the arguments of {owner}"
        self._signature = inspect.signature(fn)
        parameters = list(self._signature.parameters.values())
        self._names = tuple(p.name for p in parameters)
        self._plain = all(p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for p in parameters)
        self._all_given = self._plain and all(p.default is inspect.Parameter.empty for p in parameters)
        # Where every call gives all of them by position: a struct is made and written quicker than a dict.
        simple = self._plain and not any(name.startswith("__") for name in self._names)
        self._given = msgspec.defstruct("given", self._names, gc=False) if simple else None
        self._hints: dict[str, Any] | None = None
        self._decoder: msgspec.json.Decoder[Any] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return self._names

    @property
    def required(self) -> tuple[str, ...]:
        """The parameters that have no default."""
        parameters = self._signature.parameters.values()
        return tuple(p.name for p in parameters if p.default is inspect.Parameter.empty and p.kind not in _SPREAD)

    @property
    def signature(self) -> inspect.Signature:
        return self._signature

    @cached_property
    def returns(self) -> Any:
        """The declared type of the result; Any if none is declared."""
        return self.hints.get("return", Any)

    @property
    def hints(self) -> dict[str, Any]:
        if self._hints is None:
            try:
                self._hints = typing.get_type_hints(self._fn)
            except (NameError, TypeError) as error:
                raise BadInput(f"the type hints of {self._owner} cannot be read: {error}") from error
        return self._hints

    def encode(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> msgspec.Raw:
        """The call's arguments by name, as stored."""
        if self._given is not None and not kwargs and len(args) == len(self._names):
            return codec.encode(self._given(*args), self._what)
        try:
            named = dict(self._signature.bind(*args, **kwargs).arguments)
        except TypeError as error:
            raise BadInput(f"{self._owner}: {error}; it takes {self._signature}") from error
        return codec.encode(named, self._what)

    def decode(self, raw: msgspec.Raw) -> tuple[list[Any], dict[str, Any]]:
        """The stored arguments, typed, ready for the call."""
        if self._decoder is None:
            self._decoder = self._make_decoder()
        try:
            found = self._decoder.decode(raw)
        except (msgspec.ValidationError, msgspec.DecodeError) as error:
            raise BadInput(f"{self._owner} cannot be called so: {error}; it takes {self._signature}") from error
        if self._all_given:
            return list(msgspec.structs.astuple(found)), {}
        return self._spread(found)

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
            elif parameter.default is inspect.Parameter.empty:
                fields.append((parameter.name, kind))
            else:
                fields.append((parameter.name, kind | msgspec.UnsetType, msgspec.UNSET))
        try:
            shape = msgspec.defstruct("arguments", fields, kw_only=True, forbid_unknown_fields=True)
            return msgspec.json.Decoder(shape, dec_hook=codec.dec_hook)
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
