"""Files of a data directory, decoded; no broker is asked, and a running one is not disturbed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odradek.client.client import Failed
from odradek.storage.disk.os_disk import OsDisk
from odradek.storage.dump import dump_file

if TYPE_CHECKING:
    from collections.abc import Sequence


def dump(paths: Sequence[str], *, records: bool) -> list[dict[str, Any]]:
    """The entries of each file. Raises Failed for a file whose name says that it is none of a data directory."""
    disk = OsDisk()
    try:
        return [{"file": path, "entries": list(dump_file(disk, path, records=records))} for path in paths]
    except ValueError as unknown:
        raise Failed(str(unknown)) from unknown
    finally:
        disk.close()
