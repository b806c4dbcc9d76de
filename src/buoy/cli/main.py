"""The command `buoy`: all verbs in one place."""

from __future__ import annotations

import click

from buoy.cli.completion import completion
from buoy.cli.crashtest import crashtest
from buoy.cli.doctor import doctor
from buoy.cli.events import events
from buoy.cli.graph import graph
from buoy.cli.logs import logs
from buoy.cli.migrate import migrate
from buoy.cli.program import Program
from buoy.cli.ps import ps
from buoy.cli.purging import purge_command
from buoy.cli.recovering import recover
from buoy.cli.result import result
from buoy.cli.resuming import release, resume
from buoy.cli.returning import jump, retry
from buoy.cli.run import run, start
from buoy.cli.schedule import schedule_group
from buoy.cli.service import service
from buoy.cli.show import show
from buoy.cli.speaking import answer, cancel, pause, signal
from buoy.cli.status import status
from buoy.cli.sweeper import sweeper
from buoy.cli.transfer import export_command, import_command
from buoy.cli.validate import validate
from buoy.cli.why import why
from buoy.cli.worker import worker
from buoy.wiring import buoy_version


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(buoy_version(), prog_name="buoy")
def main() -> None:
    """Durable workflows that come back: killed, stalled or orphaned, at the step where they were."""


COMMANDS = (
    run,
    start,
    validate,
    crashtest,
    worker,
    ps,
    show,
    events,
    logs,
    why,
    graph,
    answer,
    signal,
    pause,
    resume,
    cancel,
    retry,
    jump,
    migrate,
    result,
    status,
    doctor,
    recover,
    release,
    sweeper,
    service,
    export_command,
    import_command,
    purge_command,
    schedule_group,
    completion,
)

for command in COMMANDS:
    main.add_command(command)
