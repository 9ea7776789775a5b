"""Files of the corpus, of found failures, and of a run."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.jars import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable

HERE = Path(__file__).resolve().parent
CORPUS = HERE / "corpus"
"""Checked-in inputs that reach different paths: one folder for each target."""
REGRESSIONS = HERE / "regressions"
"""Checked-in inputs that failed once: one folder for each target, one file for each repaired defect."""
FAILURES = HERE / "failures"
"""Inputs that failed in a run on this machine. Git ignores the folder."""
SCRATCH = ROOT / "build" / "fuzz"
"""Inputs that the current run has generated."""
CORPUS_BYTES_MAX = 16 * 1024
"""Maximum bytes of the checked-in corpus of one target. All of it is replayed by each `make test`."""
CORPUS_INPUTS_MAX = 60
"""Maximum checked-in inputs of one target."""


def inputs(folder: Path) -> dict[str, bytes]:
    """Return the inputs in a folder by file name, in the order of the names."""
    if not folder.is_dir():
        return {}
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def digest(data: bytes) -> str:
    """Return the file name of an input."""
    return hashlib.sha256(data).hexdigest()[:16]


def write(folder: Path, found_inputs: Iterable[bytes]) -> None:
    """Write each input into a file that is named after its content."""
    folder.mkdir(parents=True, exist_ok=True)
    for data in found_inputs:
        (folder / digest(data)).write_bytes(data)
