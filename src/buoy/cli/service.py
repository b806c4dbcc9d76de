"""`buoy service`: what a machine needs to sweep by itself."""

from __future__ import annotations

import sys
from pathlib import Path
from urllib.parse import urlsplit

import click

from buoy.cli.output import print_json
from buoy.cli.program import Exit, shared_options, span
from buoy.config import configured_store, scope_variables, store_path
from buoy.core.limits import SWEEP_S
from buoy.errors import BadInput
from buoy.recovery.service import nearest_cron
from buoy.recovery.service import service as texts_of


@click.command()
@click.option("--interval", metavar="TIME", default=f"{SWEEP_S:g}", show_default=True, callback=span,
              help="How often to sweep: seconds, or 5m, 1h...")  # fmt: skip
@click.option("--form", type=click.Choice(["both", "systemd", "crontab"]), default="both", show_default=True,
              help="Which text to print.")  # fmt: skip
@shared_options
def service(interval: float, form: str, store: str | None, as_json: bool) -> int:
    """Print a systemd unit and a crontab line that sweep this store.

    Nothing is installed. A worker sweeps by itself; this is for machines on which no worker runs all the time. The
    texts name the store, stack and env that this command would use. Cron sweeps at intervals that divide an hour or a
    day; systemd at any.

    \b
    Example:
      buoy service --form systemd > ~/.config/systemd/user/buoy-sweeper.service
      (crontab -l; buoy service --form crontab) | crontab -

    Exit code: 0 printed, 2 bad input.
    """
    url = _whole(configured_store(store))
    if urlsplit(url).password is not None:
        raise BadInput(
            "the URL of the store has a password, which a unit file or crontab would show; leave it out of the URL, or "
            "write the service by hand with BUOY_STORE in a file of mode 0600 (EnvironmentFile=)"
        )
    found = texts_of(_program(), Path.cwd(), interval_s=interval, options=("--store", url), variables=scope_variables())
    if found.crontab is None and form != "systemd":
        near = " or ".join(f"--interval {each:g}" for each in nearest_cron(interval))
        raise BadInput(f"cron cannot sweep every {interval:g} s exactly; choose {near}, or --form systemd")
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
