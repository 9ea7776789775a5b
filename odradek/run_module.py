"""Run a module of Odradek as a process, with the modules that the calling process uses.

A user's project often sets PYTHONPATH or works in a directory with packages of its own. A broker process must not import those in
place of a library. `command` therefore starts this file as a script, without `site` (-S) and without the working directory (-P).
The script appends the directory that contains this `odradek` package to sys.path, and then adds the site directories. The order
of sys.path is:

1. the standard library, which nothing can shadow;
2. the directory that `odradek` is imported from: also one of `pip install --target`, or a source tree;
3. user site and site-packages, with their .pth files.
"""

from __future__ import annotations

import os
import runpy
import site
import sys
from pathlib import Path

SCRIPT = Path(__file__).absolute()
"""Not resolved: where a directory of sys.path has a symlink to `odradek`, the directory counts, not the target of the link."""
MODULE_SOURCES = frozenset({"PYTHONPATH", "PYTHONHOME"})
"""Environment variables that change where Python finds modules. All others, PYTHONHASHSEED among them, are passed on."""


def command(module: str, *arguments: str) -> list[str]:
    """Return the argv that runs `module` as __main__. Start it with `environment()`."""
    return [sys.executable, "-P", "-S", str(SCRIPT), module, *arguments]


def environment() -> dict[str, str]:
    """Return the environment of this process without the variables that change where Python finds modules."""
    return {name: value for name, value in os.environ.items() if name not in MODULE_SOURCES}


def main() -> None:
    """Run the module that the first argument names, with the arguments behind it."""
    sys.path.append(str(SCRIPT.parent.parent))
    site.main()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
