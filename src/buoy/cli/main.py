"""The command `buoy`: all verbs. A verb is loaded when it is called, so a short command starts quickly."""

from __future__ import annotations

import click

from buoy.cli.terminal.program import Program

# In the order in which a newcomer needs them: the verb, and where it is.
VERBS = {
    "run": "run:run",
    "start": "start:start",
    "validate": "validate:validate",
    "spec-schema": "spec_schema:spec_schema_command",
    "crashtest": "crashtest:crashtest",
    "worker": "worker:worker",
    "submit": "submit:submit",
    "runner": "runner:runner",
    "jobs": "jobs:jobs",
    "watch": "watch:watch",
    "sync-status": "sync_status:sync_status",
    "slurm": "slurm:slurm_group",
    "hpc": "hpc:hpc_group",
    "workflows": "workflows:workflows_group",
    "reset": "reset:reset",
    "disable": "disable:disable",
    "ps": "ps:ps",
    "show": "show:show",
    "events": "events:events",
    "published": "published:published",
    "logs": "logs:logs",
    "why": "why:why",
    "graph": "graph:graph",
    "answer": "answer:answer",
    "signal": "signal:signal",
    "pause": "pause:pause",
    "resume": "resume:resume",
    "cancel": "cancel:cancel",
    "retry": "retry:retry",
    "jump": "jump:jump",
    "migrate": "migrate:migrate",
    "bulk": "bulk:bulk",
    "result": "result:result",
    "status": "status:status",
    "doctor": "doctor:doctor",
    "recover": "recover:recover",
    "recoveries": "recoveries:recoveries",
    "release": "release:release",
    "sweeper": "sweeper:sweeper",
    "serve": "serve:serve",
    "token": "token:token_group",
    "service": "service:service",
    "export": "export:export_command",
    "import": "import_:import_command",
    "bench-store": "bench_store:bench_command",
    "copy": "copy:copy_command",
    "purge": "purge:purge_command",
    "schedule": "schedule:schedule_group",
    "completion": "completion:completion",
}


@click.group(
    cls=Program, verbs=VERBS, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(package_name="buoy", prog_name="buoy")
def main() -> None:
    """Durable workflows that come back: killed, stalled or orphaned, at the step where they were."""
