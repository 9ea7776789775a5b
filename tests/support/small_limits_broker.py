"""A broker whose limits are small: ``python -P tests/support/small_limits_broker.py MODULE.NAME=VALUE ... -- [broker
arguments]``.

Limits are constants. They are set in the given order, before other modules import them: name imported modules first.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from importlib import import_module

from odradek.local.processes import BrokerCommand


@dataclass(frozen=True)
class SmallLimitsBrokerCommand(BrokerCommand):
    """Command line of a broker with small limits. `limits` maps a dotted name to its value."""

    limits: dict[str, int] = field(default_factory=dict)

    def argv(self) -> list[str]:
        argv = super().argv()
        at = argv.index("odradek.broker")
        limits = [f"{name}={value}" for name, value in self.limits.items()]
        return [argv[0], "-P", __file__, *limits, "--", *argv[at + 1 :]]


def main() -> int:
    at = sys.argv.index("--")
    for limit in sys.argv[1:at]:
        name, _, value = limit.partition("=")
        module_name, _, constant = name.rpartition(".")
        module = import_module(module_name)
        assert isinstance(getattr(module, constant), int), name
        setattr(module, constant, int(value))
    exit_code: int = import_module("odradek.broker.__main__").main(sys.argv[at + 1 :])
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
