"""Runner keys: where the record of a runner stands, and which runner a key is about. `layout` has the whole picture."""

from __future__ import annotations

from buoy.core.ids import RunnerId, is_run_id
from buoy.stores.objects import layout


def runner_key(runner: RunnerId) -> str:
    return f"{layout.RUNNERS}{runner}.json"


def living_key(runner: RunnerId) -> str:
    return f"{layout.LIVING}{runner}"


def gone_key(runner: RunnerId, gone_at: float) -> str:
    return f"{layout.GONE}{layout.place_of_time(gone_at)}~{runner}"


def runner_of(key: str) -> RunnerId | None:
    """The runner that an object of `living/`, `gone/` or `runners/` is about."""
    if key.startswith(layout.GONE):
        name = key.partition("~")[2]
    else:
        name = (
            key.removeprefix(layout.LIVING) if key.startswith(layout.LIVING) else layout.json_name(key, layout.RUNNERS)
        )
    return RunnerId(name) if is_run_id(name) else None
