"""The workflow of lots: known to every runner that has room for jobs.

Invariant: a lot has no code of its own and no version but this one: what it does is in its input.
"""

from __future__ import annotations

import inspect
from typing import Any

import msgspec

from buoy.core.batch.lots import Lot
from buoy.core.log import codec
from buoy.core.log.events import LOT_WORKFLOW
from buoy.engine.authoring.arguments import Arguments
from buoy.engine.authoring.definitions import Workflow
from buoy.errors import NotAllowedHere

LOT_VERSION = "1"


class LotWorkflow(Workflow[..., Any]):
    """A workflow without code: its input has the jobs."""

    def __init__(self) -> None:
        self.name = LOT_WORKFLOW
        self.recovery = "resume"
        self.queue = "default"
        self.version = LOT_VERSION
        self.is_async = False
        self.fn = self
        self.arguments = LotArguments()
        self.__name__ = self.name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotAllowedHere("a lot is no function; submit a spec, and its jobs become lots")


class LotArguments(Arguments):
    """The input of a lot, as the engine sees arguments."""

    def __init__(self) -> None:
        self._signature = inspect.Signature()
        self._names = ()
        self._hints = {}
        self.defaults = {}

    def decode(self, raw: msgspec.Raw) -> tuple[list[Any], dict[str, Any]]:
        read_lot(raw)
        return [], {}


def read_lot(raw: msgspec.Raw) -> Lot:
    """The lot in the input of a run."""
    lot: Lot = codec.decode(raw, Lot, "the jobs of a lot")
    return lot
