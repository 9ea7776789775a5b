"""Fixtures of the broker's unit tests."""

from __future__ import annotations

import pytest

from odradek.storage.segment import segment


@pytest.fixture
def reads_from_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every read use the segment file: no log keeps its latest batches in memory."""
    monkeypatch.setattr(segment, "RECENT_BYTES_MAX", 0)
