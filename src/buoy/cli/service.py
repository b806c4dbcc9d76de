"""`buoy service`: what a machine needs to sweep by itself."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from buoy.cli.output import print_json
from buoy.cli.program import Exit, shared_options, span
from buoy.config import configured_store, store_path
from buoy.core.limits import SWEEP_S
from buoy.recovery.service import service as texts_of


@click.command()
@click.option("--interval", metavar="TIME", default=f"{SWEEP_S:g}", show_default=True, callback=span,
              help="How often to sweep: seconds, or 5m, 1h...")  # fmt: skip
@click.option("--form", type=click.Choice(["both", "systemd", "crontab"]), default="both", show_default=True,
              help="Which text to print.")  # fmt: skip
@shared_options
def service(interval: float, form: str, store: str | None, as_json: bool) -> int:
    """Print a systemd unit and a crontab line that sweep this store.

    Nothing is installed. A worker sweeps by itself; this is for machines on which no worker runs all the time.

    \b
    Example:
      buoy service --form systemd > ~/.config/systemd/user/buoy-sweeper.service
      (crontab -l; buoy service --form crontab) | crontab -

    Exit code: 0 printed, 2 bad input.
    """
    found = texts_of(_program(), Path.cwd(), interval_s=interval, options=("--store", _whole(configured_store(store))))
    if as_json:
        print_json(found)
    elif form == "both":
        click.echo(f"# systemd: ~/.config/systemd/user/buoy-sweeper.service\n{found.systemd}")
        click.echo(f"# or cron: crontab -e\n{found.crontab}", nl=False)
    else:
        click.echo(found.systemd if form == "systemd" else found.crontab, nl=False)
    return Exit.OK


def _program() -> tuple[str, ...]:
    """How this very Buoy is called, from anywhere."""
    return (sys.executable, "-m", "buoy")


def _whole(url: str) -> str:
    """The URL with an absolute path: a service starts in a folder of its own."""
    place = store_path(url)
    if place is None or place.is_absolute():
        return url
    return f"sqlite:///{place.absolute()}"
