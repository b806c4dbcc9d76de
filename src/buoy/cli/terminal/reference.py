"""The reference of the command line, from its commands: `python -m buoy.cli.terminal.reference > docs/cli.md`."""

from __future__ import annotations

import click

from buoy.cli.main import main

_WIDTH = 100

_HEAD = """\
# The command line

Every command takes `--store URL` and `--json`. The store is, in this order: `--store`, the variable `BUOY_STORE`,
`store` in the nearest `buoy.toml` (here or in a parent folder), the nearest `.buoy/buoy.db` that is there (here or in a
parent folder), `sqlite:///.buoy/buoy.db`.

```toml
# buoy.toml: relative paths count from the folder of this file
store = "sqlite:///runs.db"
stack = "billing"     # or BUOY_STACK: only runs of this stack are started, driven and recovered here; none: all stacks
env = "test"          # or BUOY_ENV: runs of another env are never touched; none is the default env

[worker]
files = ["flows.py", "package.module"]   # what `buoy worker` loads when no file is named
```

Results go to standard output, everything else to standard error. With `--json` standard output has one JSON document
(`buoy worker` and `buoy events --follow`: one per line), also for errors: `{"error": {"type": ..., "message": ...}}`.
A refused answer also has a stable `reason`: `none_open`, `several_open`, `answered`, `withdrawn`, `superseded` or
`never_asked`.

| exit code | meaning |
|---|---|
| 0 | done; for `run` and `result`: the run completed |
| 1 | the run failed; there are troubles (`status`, `why --all`, `sweeper --once`); or any other error |
| 2 | bad input: nothing was changed; correct it and try again |
| 3 | the run was cancelled |
| 4 | the run has not ended yet |
| 5 | the store cannot be used, or gives no answer |
| 130, 143 | ended at once by a second SIGINT or SIGTERM |

This page is made by `python -m buoy.cli.terminal.reference`; a test compares the two.
"""


def reference() -> str:
    """All of docs/cli.md."""
    parts = [_HEAD]
    for name, command in main.every_command().items():
        parts.append(f"## buoy {name}\n\n```text\n{_help(name, command)}\n```\n")
        inner = command.commands.items() if isinstance(command, click.Group) else ()
        parts += [f"### buoy {name} {verb}\n\n```text\n{_help(f'{name} {verb}', each)}\n```\n" for verb, each in inner]
    return "\n".join(parts)


def _help(name: str, command: click.Command) -> str:
    parent = _context(main, "buoy", None)
    with _context(command, name, parent) as context:
        return "\n".join(line.rstrip() for line in command.get_help(context).splitlines())


def _context(command: click.Command, name: str, parent: click.Context | None) -> click.Context:
    names = ["-h", "--help"]
    return click.Context(
        command, parent, name, terminal_width=_WIDTH, max_content_width=_WIDTH, help_option_names=names
    )


if __name__ == "__main__":
    click.echo(reference(), nl=False)
