"""All fuzz targets by name."""

from __future__ import annotations

from tests.fuzz.targets.messages import MESSAGES

TARGETS = {target.name: target for target in (MESSAGES,)}
