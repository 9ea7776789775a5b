"""Pages of the documentation of which parts are drawn from tables of the code; the rest is written by hand."""

import sys
from pathlib import Path


def with_generated(page: Path, text: str, source: str, generated: str) -> str:
    """`text` with `generated` between the marker lines of `source`. Raises ValueError when they are not there."""
    begin, end = f"<!-- generated from {source}: begin -->", f"<!-- generated from {source}: end -->"
    before, _, rest = text.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise ValueError(f"{page.name} has no place for the table: {begin}")
    return f"{before}{begin}\n\n{generated}\n\n{end}{after}"


def write_or_check(page: Path, wanted: str, module: str, *, check: bool) -> int:
    """Write the page; with `check` only look: exit code 1 when it is out of date."""
    if not check:
        page.write_text(wanted)
    elif page.read_text() != wanted:
        sys.stderr.write(f"{page.name} is out of date: python -m {module}\n")
        return 1
    return 0
