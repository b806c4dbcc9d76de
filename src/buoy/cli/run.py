"""`buoy run`: start a run in this process and drive it to its end."""

from __future__ import annotations

import sys

import click

from buoy.cli.terminal.lines.outcomes import print_outcome
from buoy.cli.terminal.live import Lines, LiveView, RunDisplay
from buoy.cli.terminal.options.targets import arg_option, input_option, named_target, param_option
from buoy.cli.terminal.outlets import outlive_readers
from buoy.cli.terminal.output import results_alone, say
from buoy.cli.terminal.program import Exit, calls_option, go, shared_options, wording
from buoy.cli.terminal.render import local
from buoy.cli.terminal.signals import end_at_once, stop_signals
from buoy.cli.terminal.watching import Watch
from buoy.config import configured_store
from buoy.core.limits import STOP_ANSWER_S, STOP_GRACE_S
from buoy.operations.control.outcome import RunOutcome, outcome, successor
from buoy.operations.control.start import begin
from buoy.operations.targets.spec_files import Target
from buoy.wiring.local_worker import open_driver


@click.command()
@click.argument("target", metavar="FILE.py:WORKFLOW | FILE.yaml")
@input_option
@arg_option
@param_option
@calls_option
@click.option("--id", "run_id", metavar="ID", help="Run id. If the run exists, continue it.")
@click.option("--ask", is_flag=True, help="Ask open questions here even without a terminal.")
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

    If the run of --id exists, continue it: take it over once its owner is proven dead, or watch it while another
    process drives it. Ctrl-C stops gracefully and releases the run; a second Ctrl-C ends the process at once.

    \b
    Example:
      buoy run flows.py:order --input '{"item": "lamp"}' --id order-1
      buoy run nightly.yaml --param k=1:5

    Exit code: 0 completed, 1 failed, 2 bad input, 3 cancelled, 4 released before its end, 5 store unusable.
    """
    outlive_readers()
    with results_alone(as_json=as_json):
        found = named_target(target, given, pairs, params, prefixes)
        done, left = go(_run(found, run_id, store, ask=ask, as_json=as_json))
    code = print_outcome(done, as_json=as_json)
    if code is Exit.NOT_ENDED and not as_json:
        again = wording(store, local).command("run", target, "--id", done.run_id)
        say(f"continue it: {again}", err=True)
    if left:
        # A step still executes and ignores the stop. The run is free once this process has ended.
        end_at_once(code)
    return code


async def _run(
    target: Target, run_id: str | None, store: str | None, *, ask: bool, as_json: bool
) -> tuple[RunOutcome, int]:
    terminal = sys.stderr.isatty() and not as_json
    async with open_driver(configured_store(store), calls=target.calls) as worker:
        view: RunDisplay = LiveView() if terminal else Lines(quiet=as_json)
        with stop_signals() as stop:
            watch = Watch(worker, view, stop, store=store, ask=ask or (terminal and sys.stdin.isatty()))
            left = 0
            try:
                # A server that hangs answers nothing, for hours if need be: a stop ends the wait for it.
                await stop.interrupts(worker.start(takes_work=False, sweeps=False))
                current, new = await stop.interrupts(begin(watch.client, target, run_id))
                view.say(f"run {current}")
                await stop.interrupts(watch.until_end(current, new=new), STOP_ANSWER_S)
                while stop.name is None and (following := await successor(watch.client, current)) is not None:
                    view.say(f"run {current} continues as {following}")
                    current = following
                    await stop.interrupts(watch.until_end(current, new=True), STOP_ANSWER_S)
            finally:
                if stop.name is not None:
                    view.say(f"{stop.name}: stopping; steps under way have {STOP_GRACE_S:g} s (again: at once)")
                left = await worker.stop(stop.name or "stop")
                view.close()
            return await stop.interrupts(outcome(watch.client, current), STOP_ANSWER_S), left
