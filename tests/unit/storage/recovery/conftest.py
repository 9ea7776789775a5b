"""Fixtures of the recovery tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from odradek.storage.disk.os_disk import OsDisk

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def disk() -> Iterator[OsDisk]:
    disk = OsDisk()
    yield disk
    disk.close()
