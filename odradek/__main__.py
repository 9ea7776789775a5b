"""Command line of Odradek: `odradek COMMAND` or `python -m odradek COMMAND`."""

from __future__ import annotations

from typing import NoReturn

from odradek.interruption import exit_with


def main() -> NoReturn:
    """Run the command line. Ctrl-C has its usual end also while the modules of the command line are imported."""
    exit_with(_run)


def _run() -> int:
    from odradek.commands.application import run

    return run()


if __name__ == "__main__":
    main()
