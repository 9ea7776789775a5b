"""Files in memory, for libraries that read secrets from files only."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def memory_file(content: bytes) -> Iterator[str]:
    """Yield the path of a file in memory with this content. No other user can open it, and it is never on a disk."""
    descriptor = os.memfd_create("odradek", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
