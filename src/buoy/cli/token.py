"""`buoy token`: who may ask a server."""

from __future__ import annotations

import click

from buoy.cli.terminal import render
from buoy.cli.terminal.output import print_json
from buoy.cli.terminal.program import Exit, connected, duration, go, shared_options
from buoy.core.durations import in_words
from buoy.operations.maintenance import tokens
from buoy.operations.maintenance.tokens import SCOPES, MadeToken, TokenList, TokenView


@click.group("token")
def token_group() -> None:
    """Make, list and revoke the tokens of a server. Name the store behind the server, not the server.

    Each command takes --store and --json.

    \b
    Example:
      buoy token create dashboard --scope read

    Exit code: 0 done, 2 bad input, 5 store unusable.
    """


@token_group.command("create")
@click.argument("name")
@click.option("--scope", "scopes", multiple=True, type=click.Choice(SCOPES),
              help="What it may do; may be repeated. [read]")  # fmt: skip
@click.option("--expires-in", "expires_in_s", metavar="TIME", callback=duration, help="Expire after this time: 90d.")
@shared_options
def create_command(
    name: str, scopes: tuple[str, ...], expires_in_s: float | None, store: str | None, as_json: bool
) -> int:
    """Make a token and print it, this once. The store keeps its hash only.

    Scopes: read looks; operate also changes runs; admin also imports and repairs; runner serves workers.

    \b
    Example:
      buoy token create deploy --scope operate --expires-in 90d

    Exit code: 0 made, 2 bad input, 5 store unusable.
    """
    made = go(_created(name, scopes, expires_in_s, store))
    if as_json:
        print_json(made)
        return Exit.OK
    click.echo(
        f"{made.id}: {made.name}, scope {', '.join(made.scopes)}; keep the token, it is not shown again:", err=True
    )
    click.echo(made.token)
    return Exit.OK


async def _created(name: str, scopes: tuple[str, ...], expires_in_s: float | None, store: str | None) -> MadeToken:
    async with connected(store) as client:
        return await tokens.create_token(client, name, scopes, expires_in_s=expires_in_s)


@token_group.command("list")
@shared_options
def list_command(store: str | None, as_json: bool) -> int:
    """List the tokens with their scopes and their last use. The tokens themselves are not shown.

    \b
    Example:
      buoy token list

    Exit code: 0 listed, 2 bad input, 5 store unusable.
    """
    found = go(_listed(store))
    if as_json:
        print_json(found)
        return Exit.OK
    if not found.tokens:
        click.echo("no tokens")
        return Exit.OK
    table = render.plain_table("ID", "NAME", "SCOPE", "STATE", "AGE", "EXPIRES IN", "LAST USE")
    for each in found.tokens:
        ends = "never" if each.expires_in_s is None else in_words(max(0.0, each.expires_in_s))
        used = "never" if each.used_age_s is None else f"{in_words(each.used_age_s)} ago"
        table.add_row(each.id, each.name, ", ".join(each.scopes), each.state, in_words(each.age_s), ends, used)
    render.console().print(table)
    return Exit.OK


async def _listed(store: str | None) -> TokenList:
    async with connected(store) as client:
        return await tokens.list_tokens(client)


@token_group.command("revoke")
@click.argument("token_id", metavar="ID")
@shared_options
def revoke_command(token_id: str, store: str | None, as_json: bool) -> int:
    """Make a token useless permanently. Servers refuse it within seconds.

    \b
    Example:
      buoy token revoke tok-0f3k

    Exit code: 0 revoked, 2 bad input, 5 store unusable.
    """
    gone = go(_revoked(token_id, store))
    if as_json:
        print_json(gone)
    else:
        click.echo(f"{gone.id}: {gone.name} is revoked")
    return Exit.OK


async def _revoked(token_id: str, store: str | None) -> TokenView:
    async with connected(store) as client:
        return await tokens.revoke_token(client, token_id)
