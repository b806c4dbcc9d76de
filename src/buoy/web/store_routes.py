"""Store routes: the calls of the API about a store as a whole: its runners, schedules, bundles, checks, bulk actions.

Invariant: a handler asks one operation and returns its struct: no logic that the command line does not have.
"""

from __future__ import annotations

from typing import Any

import msgspec

from buoy.core.bundle.format import parse, render
from buoy.core.schedule.schedule import CatchUp, Schedule
from buoy.errors import BadInput, CorruptLog, UnknownSchedule, UnknownWorkflow, WrongState
from buoy.operations.control import bulk, schedules
from buoy.operations.control.start_named import StartOrder
from buoy.operations.inspect import fleet, troubles
from buoy.operations.maintenance import bundles, doctor, doctor_report, status
from buoy.web.endpoint import CHANGE_ERRORS, RUN_ERRORS, STORE_ERRORS, Asked, Endpoint, Nothing
from buoy.web.run_routes import RunsChoice, filter_of

# A server reads a bundle into memory; larger ones go through `buoy import`.
BUNDLE_BODY_BYTES_MAX = 64 * 1024 * 1024


class RunnersQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many of the runners that are gone."""

    gone: int = 20


class ImportQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a bundle is imported, as the options of `buoy import`."""

    quarantine: bool = False
    resume: bool = False
    as_found: bool = False


class ExportQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`as_found`: with document and task just as the store has them."""

    as_found: bool = False


class ScheduleBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What to start, and when: `cron`, or `every_s`."""

    start: StartOrder
    cron: str | None = None
    every_s: float | None = None
    zone: str | None = None
    catch_up: CatchUp = "last"


class DoctorBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`fix`: repair what the logs determine. `rebuild`: also rebuild every document."""

    fix: bool = False
    rebuild: bool = False


class BulkBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An action, and the runs that it is for."""

    action: bulk.BulkAction
    runs: RunsChoice
    reason: str | None = None


class BulkApplyBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The token of a preview; `cursor`: of the part before. The same request again is safe."""

    token: str
    cursor: str | None = None
    limit: int = 100
    rate: float | None = None


async def _status(asked: Asked) -> status.StatusReport:
    return await status.store_status(asked.client)


async def _troubles(asked: Asked) -> troubles.TroubleList:
    return await troubles.all_troubles(asked.client)


async def _runners(asked: Asked) -> fleet.RunnerList:
    return await fleet.list_runners(asked.client, gone=asked.query.gone)


async def _sweepers(asked: Asked) -> fleet.SweeperList:
    return await fleet.list_sweepers(asked.client)


async def _definitions(asked: Asked) -> fleet.DefinitionList:
    return await fleet.list_definitions(asked.client)


async def _definition(asked: Asked) -> fleet.DefinitionText:
    return await fleet.stored_definition(asked.client, asked.path["version"])


async def _schedules(asked: Asked) -> schedules.ScheduleList:
    return (await schedules.list_schedules(asked.client)).listed()


async def _add_schedule(asked: Asked) -> Schedule:
    body: ScheduleBody = asked.body
    times = schedules.Times(cron=body.cron, every_s=body.every_s, zone=body.zone, catch_up=body.catch_up)
    return await schedules.add_named_schedule(asked.client, asked.path["name"], body.start, times)


async def _pause_schedule(asked: Asked) -> Schedule:
    return await schedules.pause_schedule(asked.client, asked.path["name"])


async def _resume_schedule(asked: Asked) -> Schedule:
    return await schedules.resume_schedule(asked.client, asked.path["name"])


async def _remove_schedule(asked: Asked) -> object:
    return await schedules.remove_schedule(asked.client, asked.path["name"])


async def _export(asked: Asked) -> msgspec.Raw:
    return msgspec.Raw(render(await bundles.export_run(asked.client, asked.run, as_found=asked.query.as_found)))


async def _import(asked: Asked) -> bundles.Imported:
    query: ImportQuery = asked.query
    return await bundles.import_run(
        asked.client, parse(asked.data), quarantine=query.quarantine, resume=query.resume, as_found=query.as_found
    )


async def _doctor(asked: Asked) -> doctor_report.DoctorReport:
    body: DoctorBody = asked.body
    return await doctor.Doctor(asked.client, fix=body.fix, rebuild=body.rebuild, progress=lambda _: None).examine()


async def _bulk_preview(asked: Asked) -> bulk.BulkPreview:
    body: BulkBody = asked.body
    order = bulk.BulkOrder(action=body.action, runs=filter_of(body.runs), reason=body.reason)
    return await bulk.preview(asked.client, order)


async def _bulk_apply(asked: Asked) -> bulk.BulkPart:
    body: BulkApplyBody = asked.body
    return await bulk.apply_part(asked.client, body.token, cursor=body.cursor, limit=body.limit, rate=body.rate)


_SCHEDULE_ERRORS = (UnknownSchedule, BadInput, WrongState, CorruptLog, *STORE_ERRORS)
STORE_ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint("GET", "/status", "read", "Report runs, runners, sweepers and troubles.", status.StatusReport, _status,
             errors=STORE_ERRORS),
    Endpoint("GET", "/troubles", "read", "List the runs that need care.", troubles.TroubleList, _troubles,
             errors=STORE_ERRORS),
    Endpoint("GET", "/runners", "read", "List runners.", fleet.RunnerList, _runners, RunnersQuery,
             errors=(BadInput, *STORE_ERRORS)),
    Endpoint("GET", "/sweepers", "read", "Report the health of sweepers.", fleet.SweeperList, _sweepers,
             errors=STORE_ERRORS),
    Endpoint("GET", "/definitions", "read", "List the workflows that live workers know.", fleet.DefinitionList,
             _definitions, errors=STORE_ERRORS),
    Endpoint("GET", "/definitions/{version}", "read", "Read a stored spec.", fleet.DefinitionText, _definition,
             errors=(UnknownWorkflow, *STORE_ERRORS)),
    Endpoint("GET", "/schedules", "read", "List schedules.", schedules.ScheduleList, _schedules, errors=STORE_ERRORS),
    Endpoint("PUT", "/schedules/{name}", "operate", "Add a schedule.", Schedule, _add_schedule, body=ScheduleBody,
             errors=(*CHANGE_ERRORS, UnknownWorkflow)),
    Endpoint("POST", "/schedules/{name}/pause", "operate", "Pause a schedule.", Schedule, _pause_schedule,
             body=Nothing, errors=_SCHEDULE_ERRORS),
    Endpoint("POST", "/schedules/{name}/resume", "operate", "Resume a schedule.", Schedule, _resume_schedule,
             body=Nothing, errors=_SCHEDULE_ERRORS),
    Endpoint("DELETE", "/schedules/{name}", "operate", "Remove a schedule.", dict[str, Any], _remove_schedule,
             errors=_SCHEDULE_ERRORS),
    Endpoint("GET", "/runs/{run_id}/bundle", "read", "Export a run as a bundle.", dict[str, Any], _export, ExportQuery,
             errors=RUN_ERRORS),
    Endpoint("POST", "/bundles", "admin", "Import a run from a bundle.", bundles.Imported, _import, ImportQuery,
             errors=CHANGE_ERRORS, data_max=BUNDLE_BODY_BYTES_MAX),
    Endpoint("POST", "/doctor", "admin", "Check the store, and repair it if asked.", doctor_report.DoctorReport,
             _doctor,
             body=DoctorBody, errors=STORE_ERRORS),
    Endpoint("POST", "/bulk/preview", "operate", "Count the runs that an action would touch.", bulk.BulkPreview,
             _bulk_preview, body=BulkBody, errors=(*CHANGE_ERRORS,)),
    Endpoint("POST", "/bulk/apply", "operate", "Act on the next runs of a preview.", bulk.BulkPart, _bulk_apply,
             body=BulkApplyBody, errors=(*CHANGE_ERRORS,)),
)  # fmt: skip
