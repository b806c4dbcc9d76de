"""`buoy bench-store`: measure a bucket, and what it would cost."""

from __future__ import annotations

import click
import msgspec

from buoy.cli.terminal.output import print_json
from buoy.cli.terminal.program import Exit, go, shared_options
from buoy.config import configured_store
from buoy.errors import BadInput
from buoy.wiring.bucket_bench import Measured, bench_store

# One sequential step, and an idle worker: docs/s3.md has the counts.
STEP_PUTS = 1.05
IDLE_PUTS_PER_S = 0.182
IDLE_GETS_PER_S = 0.0
MONTH_S = 30 * 86_400


class Benched(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was measured, and what it costs at the user's prices; LIST costs as much as PUT."""

    store: str
    calls: tuple[Measured, ...]
    requests: dict[str, int]
    million_steps: float | None = None
    idle_worker_month: float | None = None


@click.command("bench-store")
@click.argument("url", metavar="[URL]", required=False)
@click.option("--number", type=click.IntRange(4, 10_000), default=40, help="Calls of each kind. [40]")
@click.option("--at-once", type=click.IntRange(1, 256), default=16, help="Calls at the same time, for the rate. [16]")
@click.option("--put-price", type=click.FloatRange(0), metavar="PRICE", help="Price of 1,000 PUT or LIST requests.")
@click.option("--get-price", type=click.FloatRange(0), metavar="PRICE", help="Price of 1,000 GET requests.")
@shared_options
def bench_command(
    url: str | None,
    number: int,
    at_once: int,
    put_price: float | None,
    get_price: float | None,
    store: str | None,
    as_json: bool,
) -> int:
    """Measure each call of a bucket: latency, rate, and what steps and an idle worker would cost.

    It writes some objects of 1 KiB below the store's place and removes them. With both prices it prints the cost of a
    million sequential steps and of an idle worker for 30 days.

    \b
    Example:
      buoy bench-store s3://bucket/runs --put-price 0.005 --get-price 0.0004

    Exit code: 0 measured, 2 bad input or not a bucket, 5 store unusable.
    """
    if (put_price is None) != (get_price is None):
        raise BadInput("one price is missing: give both --put-price and --get-price, or none")
    name, calls, requests = go(bench_store(url or store or configured_store(), number=number, at_once=at_once))
    done = _priced(Benched(name, tuple(calls), requests), put_price, get_price)
    if as_json:
        print_json(done)
        return Exit.OK
    click.echo(f"store  {done.store}")
    for each in done.calls:
        click.echo(
            f"{each.call:28} median {each.median_ms:8.2f} ms   p95 {each.p95_ms:8.2f} ms   "
            f"{each.per_s:8.1f}/s with {each.at_once} at once"
        )
    if done.million_steps is not None and done.idle_worker_month is not None:
        click.echo(f"a million sequential steps: {done.million_steps:.2f}")
        click.echo(f"an idle worker for 30 days: {done.idle_worker_month:.2f}")
    return Exit.OK


def _priced(done: Benched, put_price: float | None, get_price: float | None) -> Benched:
    if put_price is None or get_price is None:
        return done
    return msgspec.structs.replace(
        done,
        million_steps=STEP_PUTS * put_price * 1_000,
        idle_worker_month=MONTH_S / 1_000 * (IDLE_PUTS_PER_S * put_price + IDLE_GETS_PER_S * get_price),
    )
