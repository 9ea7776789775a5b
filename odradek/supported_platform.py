"""Check of the operating system on which brokers can run."""

from __future__ import annotations

import sys

BROKER_PLATFORM = "linux"


def refusal() -> str:
    """Return the error message if brokers cannot run on this operating system, otherwise an empty string."""
    if sys.platform == BROKER_PLATFORM:
        return ""
    return (
        f"Odradek brokers run on Linux only, and this system is {sys.platform}: "
        "run them in a container or virtual machine with Linux"
    )
