"""Print, write or check pages of the documentation that are generated from the code."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


def main(arguments: Sequence[str], pages: Mapping[Path, str], module: str) -> int:
    """Print the first page. With `--write`, write all pages; with `--check`, compare them with the committed files.

    Return the exit code: 1 if `--check` finds a page that is out of date. `module` is the command that generates it.
    """
    if "--write" in arguments:
        for path, content in pages.items():
            path.write_text(content)
    elif "--check" not in arguments:
        sys.stdout.write(next(iter(pages.values())))
    else:
        stale = [path.name for path, content in pages.items() if not path.exists() or path.read_text() != content]
        if stale:
            sys.stderr.write(f"{', '.join(stale)}: out of date; run python -m {module} --write\n")
            return 1
    return 0


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
