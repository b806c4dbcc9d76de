"""`buoy run` and `buoy start`: begin a run, here or for workers."""

from __future__ import annotations

import re
import sys

import click
import msgspec

from buoy.cli.terminal.inputs import no_input
from buoy.cli.terminal.live import Lines, LiveView, View
from buoy.cli.terminal.outcomes import Outcome, outcome, successor, tell_outcome
from buoy.cli.terminal.output import print_json, results_alone
from buoy.cli.terminal.program import Exit, calls_option, go, shared_options, wording
from buoy.cli.terminal.render import local
from buoy.cli.terminal.signals import end_at_once, stop_signals
from buoy.cli.terminal.spec_targets import allowed_calls, find_target, is_spec_file, param_option
from buoy.cli.terminal.watching import Watch
from buoy.cli.terminal.workflow_files import AnyWorkflow
from buoy.config import configured_store, person
from buoy.core.diagnosis.takers import what_is_missing
from buoy.core.explain.phrases import status_text
from buoy.core.ids import RunId, check_run_id
from buoy.core.limits import STOP_GRACE_S
from buoy.core.log.lifecycle import Status
from buoy.core.spec.model import SPEC_PREFIX
from buoy.engine.authoring.definitions import Registry
from buoy.engine.client.client import Client
from buoy.engine.process.runner_options import RunnerOptions
from buoy.engine.spec.workflow import SpecWorkflow
from buoy.errors import WrongState
from buoy.recovery.evidence import read_fleet
from buoy.wiring import open_client, open_worker

_input_option = click.option(
    "--input", "given", metavar="JSON", help="Arguments by name, as a JSON object; @FILE reads a file, @- the input."
)
_arg_option = click.option(
    "--arg",
    "pairs",
    metavar="NAME=VALUE",
    multiple=True,
    help="One argument; repeat for others. A list is JSON: ids='[1, 5]'.",
)


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What the person asked for."""

    workflow: AnyWorkflow
    stored: msgspec.Raw | None
    run_id: str | None
    store: str | None
    as_json: bool
    ask: bool = False
    calls: tuple[str, ...] = ()


@click.command()
@click.argument("target", metavar="FILE.py:WORKFLOW | FILE.yaml")
@_input_option
@_arg_option
@param_option
@calls_option
@click.option("--id", "run_id", metavar="ID", help="The run's id; one that exists is gone on with.")
@click.option("--ask", is_flag=True, help="Ask open questions here even if this is no terminal.")
@shared_options
def run(
    target: str,
    given: str | None,
    pairs: tuple[str, ...],
    params: tuple[str, ...],
    prefixes: tuple[str, ...],
    run_id: str | None,
    ask: bool,
    store: str | None,
    as_json: bool,
) -> int:
    """Start a run in this process and drive it to its end.

    With the --id of a run that exists, goes on with that run: it is taken over once its owner is proven dead, or
    watched while somebody else drives it. Ctrl-C gives the run back in good order; a second one ends at once.

    \b
    Example:
      buoy run flows.py:order --input '{"item": "lamp"}' --id order-1
      buoy run nightly.yaml --param k=1:5

    Exit code: 0 completed, 1 failed, 2 bad input, 3 cancelled, 4 given back before its end, 5 store unusable.
    """
    with results_alone(as_json=as_json):
        calls = allowed_calls(prefixes)
        workflow, stored = find_target(target, given, pairs, params, calls)
        order = Order(
            workflow=workflow, stored=stored, run_id=run_id, store=store, as_json=as_json, ask=ask, calls=calls
        )
        found, left = go(_run(order))
    code = tell_outcome(found, as_json=as_json)
    if code is Exit.NOT_ENDED and not as_json:
        again = wording(store, local).command("run", target, "--id", found.run_id)
        click.echo(f"go on with it: {again}", err=True)
    if left:
        # Something still executes here and does not listen. The end of this process is what frees the run.
        end_at_once(code)
    return code


async def _run(order: Order) -> tuple[Outcome, int]:
    terminal = sys.stderr.isatty() and not order.as_json
    # It takes no work but its own run, so it tells nobody that it knows the workflow.
    url, options = configured_store(order.store), RunnerOptions(calls=order.calls)
    async with open_worker(url, Registry(), role="client", queues=(), options=options) as worker:
        view: View = LiveView() if terminal else Lines(quiet=order.as_json)
        with stop_signals() as stop:
            watch = Watch(worker, view, stop, store=order.store, ask=order.ask or (terminal and sys.stdin.isatty()))
            left = 0
            try:
                await worker.start(takes_work=False, sweeps=False)
                run_id, new = await begin(watch.client, order)
                view.say(f"run {run_id}")
                await watch.until_end(run_id, new=new)
                while stop.name is None and (following := await successor(watch.client, run_id)) is not None:
                    view.say(f"run {run_id} continues as {following}")
                    run_id = following
                    await watch.until_end(run_id, new=True)
            finally:
                if stop.name is not None:
                    view.say(f"{stop.name}: stopping; steps under way have {STOP_GRACE_S:g} s (again: at once)")
                left = await worker.stop(stop.name or "stop")
                view.close()
        return await outcome(watch.client, run_id), left


async def begin(client: Client, order: Order) -> tuple[RunId, bool]:
    """A new run, or the one of that id, and which of both."""
    workflow = order.workflow
    run_id = check_run_id(order.run_id) if order.run_id is not None else _new_id(client, workflow)
    there = await client.store.run(run_id) if order.run_id is not None else None
    if there is not None and there.document.workflow != workflow.name:
        raise WrongState(f"run {run_id} is a run of {there.document.workflow}, not of {workflow.name}")
    if there is None or order.stored is not None:
        await client.start_stored(run_id, workflow, order.stored or no_input(workflow.arguments))
    else:
        client.registry.add(workflow)
    return run_id, there is None


def _new_id(client: Client, workflow: AnyWorkflow) -> RunId:
    """An id that begins with the workflow's name, as far as ids allow that."""
    name = re.sub(r"[^a-z0-9._-]", "-", workflow.name.removeprefix(SPEC_PREFIX).lower()[:40]).lstrip("._-")
    return check_run_id(client.ids.new(f"{name}-" if name else ""))


@click.command()
@click.argument("target", metavar="FILE.py:WORKFLOW | FILE.yaml")
@_input_option
@_arg_option
@param_option
@calls_option
@click.option("--id", "run_id", metavar="ID", help="The run's id; starting it twice with one input is one run.")
@shared_options
def start(
    target: str,
    given: str | None,
    pairs: tuple[str, ...],
    params: tuple[str, ...],
    prefixes: tuple[str, ...],
    run_id: str | None,
    store: str | None,
    as_json: bool,
) -> int:
    """Make a run durable for workers to drive, and print its id.

    \b
    Example:
      buoy start flows.py:order --arg item=lamp --id order-1
      buoy start nightly.yaml --param k=1:5

    Exit code: 0 started (or there already), 2 bad input, 5 store unusable.
    """
    with results_alone(as_json=as_json):
        calls = allowed_calls(prefixes)
        workflow, stored = find_target(target, given, pairs, params, calls)
        order = Order(workflow=workflow, stored=stored, run_id=run_id, store=store, as_json=as_json)
        made, new, missing, status = go(_start(order))
    if as_json:
        print_json({"run_id": made, "workflow": workflow.name, "created": new, "missing": missing})
        return Exit.OK
    click.echo(made)
    if missing is not None:
        file = () if is_spec_file(target) else (target.rpartition(":")[0] or target,)
        command = wording(store, local).command("worker", *file, *_needed_calls(workflow))
        there = "it is queued" if new else f"it was there already, and is {status_text(status)}"
        click.echo(f"{there}, but {missing}; start one: {command}", err=True)
    elif not new:
        click.echo(f"it was there already, and is {status_text(status)}", err=True)
    return Exit.OK


def _needed_calls(workflow: AnyWorkflow) -> list[str]:
    """What a worker must be told so that it has the functions of a spec."""
    called = workflow.spec.calls() if isinstance(workflow, SpecWorkflow) else set()
    return [
        word for module in sorted({each.partition(":")[0] for each in called}) for word in ("--allow-calls", module)
    ]


async def _start(order: Order) -> tuple[RunId, bool, str | None, Status]:
    async with open_client(configured_store(order.store), actor=person()) as client:
        run_id, new = await begin(client, order)
        document = (await client.record(run_id)).document
        fleet = await read_fleet(client.store, client.liveness)
        missing = None if document.ended else what_is_missing(document, fleet.living)
        return run_id, new, missing, document.status
