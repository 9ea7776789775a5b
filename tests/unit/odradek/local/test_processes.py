"""Broker processes of a local cluster."""

import fcntl
import os
import resource
import subprocess
import sys

from odradek.local.processes import has_ended

HIGH_DESCRIPTOR = 1_500


def test_end_of_a_process_is_detected_with_a_high_descriptor() -> None:
    """select() accepts descriptors below 1,024. A program that embeds a cluster can have more of them open."""
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
