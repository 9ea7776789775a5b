"""The operating systems that brokers run on."""

from __future__ import annotations

import sys

BROKER_PLATFORM = "linux"


def refusal() -> str:
    """Return why a broker cannot run on this operating system, or an empty string if it can."""
    if sys.platform == BROKER_PLATFORM:
        return ""
    return (
        f"Odradek brokers run on Linux only, and this system is {sys.platform}: "
        "run them in a container or virtual machine with Linux"
    )
