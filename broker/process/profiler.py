"""Profile of a broker process by py-spy, which runs as a separate process and adds no work to the broker."""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from odradek.broker.config.property import ConfigError

FORMATS: Final = {".svg": "flamegraph", ".json": "speedscope", ".folded": "raw"}
"""py-spy's output formats by file suffix: a flame graph for browsers, and two formats that other tools read."""
SAMPLES_PER_S: Final = 100
WRITE_TIMEOUT_S: Final = 30.0
"""Maximum time to write a profile. One of an hour with 10,000 different stacks takes about a second."""
PR_SET_PTRACER: Final = 0x59616D61
PR_SET_PTRACER_ANY: Final = -1


def profile_command(path: Path) -> list[str]:
    """Return the py-spy command that samples this process and writes `path`.

    Only threads that use the processor are sampled, so the time that the broker waits for work is not in the profile.

    Raises:
        ConfigError: py-spy is not installed, or the suffix of `path` is not one of `FORMATS`.
    """
    if path.suffix not in FORMATS:
        raise ConfigError(f"--profile {path}: the name must end in {', '.join(FORMATS)}")
    beside_python = str(Path(sys.executable).parent)
    program = shutil.which("py-spy", path=os.pathsep.join([beside_python, os.environ.get("PATH", os.defpath)]))
    if program is None:
        raise ConfigError("--profile: py-spy is not installed; install it with: pip install 'odradek[profile]'")
    command = [program, "record", "--nonblocking", "--rate", str(SAMPLES_PER_S), "--format", FORMATS[path.suffix]]
    return [*command, "--output", str(path), "--pid", str(os.getpid())]


@contextmanager
def profiling(command: Sequence[str]) -> Iterator[None]:
    """Run the command of `profile_command` beside the block; afterwards wait until it has written the file."""
    # Yama (kernel.yama.ptrace_scope=1) lets a process trace only its descendants. py-spy traces its parent.
    ctypes.CDLL(None).prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0)
    # Not to standard error: the last line there is the reason when a start fails.
    with tempfile.TemporaryFile("w+") as output:
        sampler = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # Ctrl-C signals the broker only, so the profile includes the stop
        )
        try:
            yield
        finally:
            sampler.send_signal(signal.SIGINT)
            try:
                code = sampler.wait(WRITE_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                sampler.kill()
                code = sampler.wait()
            if code != 0:
                output.seek(0)
                print(f"the profile was not written: {output.read().strip()}", file=sys.stderr)  # noqa: T201  for the operator
