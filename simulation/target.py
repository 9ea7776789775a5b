"""Names of simulations on the command line: `MODULE:FUNCTION`, or `FILE.py:FUNCTION`."""

import importlib
import os
import shlex
import site
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from odradek.simulation.errors import UnknownTarget
from odradek.simulation.setup import Setup

ATTRIBUTE: Final = "odradek_setup"
"""Attribute of a decorated function that has its `Setup`."""


def load(target: str) -> Setup:
    """Return the setup of a decorated function. A function without the decorator gets the default setup.

    Raise UnknownTarget if the name has no colon, or if the module or the function does not exist.
    """
    place, separator, name = target.rpartition(":")
    if not separator:
        raise UnknownTarget(f"{target!r} has no colon. Use MODULE:FUNCTION or FILE.py:FUNCTION.")
    module = _load_file(Path(place)) if place.endswith(".py") else _load_module(place)
    found = getattr(module, name, None)
    if found is None:
        raise UnknownTarget(f"{place} has no {name!r}. Name a function or a class with a method main(self, sim).")
    setup = getattr(found, ATTRIBUTE, None)
    return setup if isinstance(setup, Setup) else Setup(found)


def _load_module(name: str) -> Any:
    sys.path.insert(0, os.getcwd())  # noqa: PTH109  the entry that `python -m` has
    return _import(name)


def _load_file(path: Path) -> Any:
    """Import a file by the name that pytest gives it: packages above it are part of the name."""
    if not path.is_file():
        raise UnknownTarget(f"The file {path} does not exist. Run the command in the folder from which pytest ran.")
    path = path.resolve()
    root, parts = import_root(path), [path.stem]
    for folder in path.parents:
        if folder == root:
            break
        parts.insert(0, folder.name)
    sys.path.insert(0, str(root))
    return _import(".".join(parts))


def import_root(path: Path) -> Path:
    """Return the folder that must be in sys.path to import the file: the first one above it without __init__.py."""
    return next(folder for folder in path.parents if not (folder / "__init__.py").exists())


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name.partition(".")[0] and error.name != name:
            raise
        raise UnknownTarget(f"There is no module {name}. Run the command in its folder, or set PYTHONPATH.") from None


def target_of(function: Callable[..., Any]) -> str:
    """Return the name of a decorated function for the command line.

    It has the file, if a file in that folder is imported by this name, and the name of the module otherwise. Raise
    UnknownTarget if the function is not in its module under a name.
    """
    module = sys.modules.get(function.__module__)
    names = [name for name, value in vars(module).items() if value is function] if module else []
    if not names or module is None or module.__file__ is None:
        raise UnknownTarget(
            f"{function.__qualname__} is not at the top of a module. Move it there, or call odradek.simulation.run."
        )
    file = Path(module.__file__).resolve()
    if import_root(file) != file.parents[module.__name__.count(".")]:
        return f"{module.__name__}:{names[0]}"
    return f"{file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file}:{names[0]}"


def additional_paths() -> list[str]:
    """Return the entries of sys.path that a new process does not have: those of pytest's option `pythonpath`."""
    usual = [sys.prefix, sys.base_prefix, sys.exec_prefix]
    for folder in map(Path, site.getsitepackages()):
        usual += [str(folder / line) for file in sorted(folder.glob("*.pth")) for line in file.read_text().splitlines()]
    return [
        path for path in sys.path if path and Path(path).is_dir() and not any(map(Path(path).is_relative_to, usual))
    ]


def command_of(target: str, options: list[str]) -> str:
    """Return the command that runs the target in a new process."""
    command = shlex.join(["python", "-m", "odradek.simulation", target, *options])
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if target.partition(":")[0].endswith(".py"):
        root = import_root(Path(target.rpartition(":")[0]).resolve())
        paths = [path for path in paths if Path(path).resolve() != root]
    paths = [os.path.relpath(path) for path in paths if Path(path).resolve() != Path.cwd()]
    return f"PYTHONPATH={shlex.quote(os.pathsep.join(paths))} {command}" if paths else command
