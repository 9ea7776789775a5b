"""Processes that a cluster is made of."""

import fcntl
import os
import resource
import subprocess
import sys

from odradek.local.processes import has_ended

HIGH_DESCRIPTOR = 1_500


def test_the_end_of_a_process_is_seen_behind_a_descriptor_of_any_number() -> None:
    """select() knows 1,024 of them, and a program that embeds a cluster may have more open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft <= HIGH_DESCRIPTOR:
        resource.setrlimit(resource.RLIMIT_NOFILE, (HIGH_DESCRIPTOR + 1, hard))
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    opened = os.pidfd_open(process.pid)
    descriptor = fcntl.fcntl(opened, fcntl.F_DUPFD, HIGH_DESCRIPTOR)
    try:
        assert not has_ended(descriptor, 0)
        process.communicate(b"\n")
        assert has_ended(descriptor, 30)
    finally:
        os.close(descriptor)
        os.close(opened)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
