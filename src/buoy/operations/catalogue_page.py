"""The catalogue in the documentation: `python -m buoy.operations.catalogue_page docs/recovery.md` rebuilds its table.

Invariant: only the text between the two marks is replaced.
"""

from __future__ import annotations

import sys
from pathlib import Path

from buoy.core.diagnosis.catalogue import CATALOGUE, named
from buoy.errors import BadInput

BEGIN = "<!-- catalogue -->\n"
END = "<!-- end of the catalogue -->\n"


def with_table(page: str) -> str:
    """The page with the table as the catalogue has it now."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise BadInput(f"the page has no place for the catalogue: it needs the lines {BEGIN.strip()} and {END.strip()}")
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def table() -> str:
    """The catalogue as the table of the docs page."""
    lines = [
        "| code | what is found | how it comes about | what Buoy does | what you can do |",
        "|---|---|---|---|---|",
    ]
    for entry in CATALOGUE.values():
        done = entry.remedy if entry.trouble else f"**Healthy.** {entry.remedy}"
        can = "; ".join(map(str, entry.you_can))
        lines.append(f"| {named(entry.code)} | {entry.title} | {entry.how} | {done} | {can} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(with_table(path.read_text()))
