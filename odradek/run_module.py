"""Run a module of Odradek as a process, with the modules that the calling process uses.

A user's project often sets PYTHONPATH, or its working directory contains packages. A broker process must not import
those instead of a library. `command` therefore starts this file as a script, without `site` (-S) and without the
working directory (-P). The script appends the directory that contains this `odradek` package to sys.path, and then adds
the site directories. The order of sys.path is:

1. The standard library. No other directory can shadow it.
2. The directory from which `odradek` is imported. It may be a source tree, or a target of `pip install --target`.
3. The user site and site-packages, with their .pth files.
"""

from __future__ import annotations

import os
import runpy
import site
import sys
from pathlib import Path

SCRIPT = Path(__file__).absolute()
"""Path of this file without resolution of symlinks.

If a directory of sys.path contains a symlink to `odradek`, the modules beside the symlink are used, as in the caller.
"""
MODULE_SOURCES = frozenset({"PYTHONPATH", "PYTHONHOME"})
"""Environment variables that change where Python finds modules. All others, such as PYTHONHASHSEED, are inherited."""


def command(module: str, *arguments: str) -> list[str]:
    """Return the command line that runs `module` as __main__. Start it with `environment()`."""
    return [sys.executable, "-P", "-S", str(SCRIPT), module, *arguments]


def environment() -> dict[str, str]:
    """Return the environment of this process without the variables that change where Python finds modules."""
    return {name: value for name, value in os.environ.items() if name not in MODULE_SOURCES}


def main() -> None:
    """Run the module that the first argument names, with the remaining arguments."""
    sys.path.append(str(SCRIPT.parent.parent))
    site.main()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
