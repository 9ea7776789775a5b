"""What tests of the broker share."""

from __future__ import annotations

import pytest

from odradek.storage.segment import segment


@pytest.fixture
def from_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """No log keeps what was appended last in memory: every read is one of the file."""
    monkeypatch.setattr(segment, "RECENT_BYTES_MAX", 0)
