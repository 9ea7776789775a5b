"""Environment of runs within a process of pytest. `make` sets PYTHONHASHSEED=0."""

from __future__ import annotations

import os

os.environ["AIOKAFKA_NO_EXTENSIONS"] = "1"
