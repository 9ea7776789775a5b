"""Command line of the simulator: `python -m tests.sim --seed 7`."""

from odradek.interruption import exit_with


def main() -> int:
    from tests.sim.command import main  # imported here because it takes a second, in which Ctrl-C is possible, too

    return main()


if __name__ == "__main__":
    exit_with(main)
