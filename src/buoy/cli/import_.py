"""`buoy import`: bring a run from a bundle into the store."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from buoy.cli.terminal.output import print_json, say
from buoy.cli.terminal.program import Exit, go, shared_options, wording
from buoy.cli.terminal.render import local
from buoy.config import configured_store, person
from buoy.core.bundle.as_found import check_found
from buoy.core.bundle.checks import check
from buoy.core.bundle.format import Bundle, parse
from buoy.core.limits import BUNDLE_BYTES_MAX
from buoy.core.log.wording import counted
from buoy.errors import BadInput, TooLarge
from buoy.operations.maintenance.bundles import Imported, import_run
from buoy.wiring.app import open_client


@click.command("import")
@click.argument("file", metavar="FILE")
@click.option("--resume", is_flag=True, help="Continue the run here at once.")
@click.option("--quarantine", is_flag=True, help="Accept a doubtful bundle; the run stays on hold.")
@click.option("--as-found", is_flag=True, help="Import document and task as the bundle has them, without a hold.")
@click.option("--check", "only_check", is_flag=True, help="Only list what is wrong with the bundle.")
@shared_options
def import_command(
    file: str, resume: bool, quarantine: bool, as_found: bool, only_check: bool, store: str | None, as_json: bool
) -> int:
    """Bring a run from a bundle into the store, under its own id; '-' reads standard input.

    A run that has not ended is imported on hold: nothing of it is executed until 'buoy resume'. A bundle with an
    invalid log is refused; a doubtful one needs --quarantine. A second import of the same bundle has no effect.

    --as-found imports an incident to recover it here: with the document, envelope and task of the bundle, even if they
    disagree with the log. Workers and sweepers of this store then treat it like any run.

    \b
    Example:
      buoy import order-1.json
      buoy import --as-found order-1.json && buoy why order-1

    Exit code: 0 imported (or it exists already), 2 refused: nothing was changed, 5 store unusable.
    """
    if resume + quarantine + as_found > 1:
        raise BadInput("--quarantine holds a run, --resume continues it, --as-found does neither; choose one")
    bundle = parse(_read(file))
    if only_check:
        return _print_check(bundle, as_found=as_found, as_json=as_json)
    done = go(_imported(bundle, store, quarantine=quarantine, resume=resume, as_found=as_found))
    if as_json:
        print_json(done)
        return Exit.OK
    for text in (*done.doubts, *done.notes):
        say(f"note: {text}", err=True)
    what = f"{counted(done.events, 'event')}, {counted(done.messages, 'message')}"
    if done.continued:
        since = f"has {counted(done.continued, 'event')} by now, the bundle has {done.events:,}"
        say(f"{done.run_id}: was imported before and {since}; nothing was changed; it is {done.status}")
    else:
        say(f"{done.run_id}: {'imported' if done.new else 'was there already'}, {what}; it is {done.status}")
    words = wording(store, local)
    if done.task is not None:
        say(f"its task is {done.task}; what is wrong with it: {words.command('why', done.run_id)}", err=True)
    elif done.held:
        say(f"it is on hold; continue it: {words.command('resume', done.run_id)}", err=True)
    return Exit.OK


async def _imported(bundle: Bundle, store: str | None, *, quarantine: bool, resume: bool, as_found: bool) -> Imported:
    async with open_client(configured_store(store), actor=person()) as client:
        return await import_run(client, bundle, quarantine=quarantine, resume=resume, as_found=as_found)


def _read(file: str) -> bytes:
    try:
        if file == "-":
            data = sys.stdin.buffer.read(BUNDLE_BYTES_MAX + 1)
        else:
            with Path(file).open("rb") as source:
                data = source.read(BUNDLE_BYTES_MAX + 1)
    except OSError as error:
        raise BadInput(f"{file} cannot be read: {error}") from error
    if len(data) > BUNDLE_BYTES_MAX:
        raise TooLarge(f"{file} has more than {BUNDLE_BYTES_MAX:,} bytes, which is the limit of a bundle")
    return data


def _print_check(bundle: Bundle, *, as_found: bool, as_json: bool) -> int:
    found = check_found(bundle).checked if as_found else check(bundle)
    bad = any(
        finding.weight == "wrong" or (finding.weight == "doubtful" and not as_found) for finding in found.findings
    )
    if as_json:
        print_json({"run_id": bundle.run_id, "events": len(bundle.log), "findings": found.findings})
    else:
        for finding in found.findings:
            say(f"{finding.weight}: {finding.text}")
        say(f"{bundle.run_id}: {counted(len(bundle.log), 'event')}, {'not sound' if bad else 'sound'}")
    return Exit.BAD_INPUT if bad else Exit.OK
