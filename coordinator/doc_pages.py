"""Insert tables that are generated from the code into pages of the documentation."""

import sys
from pathlib import Path


def with_generated(page: Path, text: str, source: str, generated: str) -> str:
    """Return `text` with `generated` between the marker lines of `source`.

    Raise ValueError if a marker line is missing.
    """
    begin, end = f"<!-- generated from {source}: begin -->", f"<!-- generated from {source}: end -->"
    before, _, rest = text.partition(begin)
    _, separator, after = rest.partition(end)
    if not separator:
        raise ValueError(f"{page.name} has no marker lines for {source}. Add '{begin}' and '{end}'.")
    return f"{before}{begin}\n\n{generated}\n\n{end}{after}"


def write_or_check(page: Path, expected: str, module: str, *, check: bool) -> int:
    """Write `expected` to the page. With `check`, only compare, and return exit code 1 if the page is out of date."""
    if not check:
        page.write_text(expected)
    elif page.read_text() != expected:
        sys.stderr.write(f"{page.name} is out of date: run python -m {module}\n")
        return 1
    return 0
