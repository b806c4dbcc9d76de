"""`buoy service`: a systemd unit and a crontab line for a sweeper or a worker."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from buoy.cli.terminal.output import print_json
from buoy.cli.terminal.program import Exit, shared_options, span
from buoy.config import configured_store, scope_variables, store_path
from buoy.core.ids import check_name
from buoy.core.limits import SWEEP_S
from buoy.core.urls import shown_url
from buoy.errors import BadInput
from buoy.operations.workers.service_units import Duty, nearest_cron, sweeping, working
from buoy.operations.workers.service_units import service as texts_of


@click.command()
@click.argument("files", metavar="[FILE.py | package.module]...", nargs=-1)
@click.option("--worker", is_flag=True, help="Print a worker for these files instead of a sweeper; it executes runs.")
@click.option("--queue", "queues", metavar="QUEUE", multiple=True,
              help="With --worker: serve this queue; may be repeated. [default]")  # fmt: skip
@click.option("--interval", metavar="TIME", default=f"{SWEEP_S:g}", show_default=True, callback=span,
              help="Time between sweeps, or between workers that cron starts: seconds, or 5m, 1h...")  # fmt: skip
@click.option("--form", type=click.Choice(["both", "systemd", "crontab"]), default="both", show_default=True,
              help="Text to print.")  # fmt: skip
@shared_options
def service(
    files: tuple[str, ...],
    worker: bool,
    queues: tuple[str, ...],
    interval: float,
    form: str,
    store: str | None,
    as_json: bool,
) -> int:
    """Print a systemd unit and a crontab line that sweep this store, or execute its runs.

    Installs nothing. A sweeper only queues lost runs again; --worker also executes them, so runs continue after a
    reboot. The unit names the folder, store, stack and env that this command uses. A worker that cron starts ends when
    nothing is due. Cron supports only intervals that divide an hour or a day.

    \b
    Example:
      buoy service --form systemd > ~/.config/systemd/user/buoy-sweeper.service
      (crontab -l; buoy service --worker flows.py --form crontab) | crontab -

    Exit code: 0 printed, 2 bad input.
    """
    url = _whole(configured_store(store))
    if shown_url(url) != url:
        raise BadInput(
            "the URL of the store may hold a password or a token, which a unit file or crontab would show; leave it "
            "out of the URL, or write the service by hand with BUOY_STORE in a file of mode 0600 (EnvironmentFile=)"
        )
    duty = _work(files, queues, url) if worker else _sweep(files, queues, interval, url)
    found = texts_of(_program(), Path.cwd(), duty, interval_s=interval, variables=scope_variables())
    if found.crontab is None and form != "systemd":
        near = " or ".join(f"--interval {each:g}" for each in nearest_cron(interval))
        raise BadInput(f"cron cannot start every {interval:g} s exactly; choose {near}, or --form systemd")
    if as_json:
        print_json(found)
    elif form == "both":
        name = "buoy-worker" if worker else "buoy-sweeper"
        click.echo(f"# systemd: ~/.config/systemd/user/{name}.service\n{found.systemd}")
        click.echo(f"# or cron: crontab -e\n{found.crontab}", nl=False)
    else:
        click.echo(found.systemd if form == "systemd" else found.crontab, nl=False)
    return Exit.OK


def _sweep(files: tuple[str, ...], queues: tuple[str, ...], interval_s: float, url: str) -> Duty:
    if files or queues:
        raise BadInput(f"a sweeper takes no files and queues: {' '.join((*files, *queues))}; add --worker")
    return sweeping(interval_s, ("--store", url))


def _work(files: tuple[str, ...], queues: tuple[str, ...], url: str) -> Duty:
    """The duty of a worker. A missing file is refused here, not after the next reboot."""
    for each in files:
        if (each.endswith(".py") or "/" in each) and not Path(each).is_file():
            raise BadInput(f"there is no file {each}; name the workflow files of the worker")
    served = [word for each in queues for word in ("--queue", check_name(each, "queue"))]
    return working(files, (*served, "--store", url))


def _program() -> tuple[str, ...]:
    """The command that starts this installation of Buoy from any folder."""
    return (sys.executable, "-m", "buoy")


def _whole(url: str) -> str:
    """The URL with an absolute path: a service starts in a folder of its own."""
    place = store_path(url)
    if place is None or place.is_absolute():
        return url
    return f"sqlite:///{place.absolute()}"
