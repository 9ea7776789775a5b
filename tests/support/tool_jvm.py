"""Kafka's command-line tools, all in one JVM: to start one is to call a method."""

from __future__ import annotations

import atexit
import base64
import functools
import itertools
from dataclasses import dataclass
from pathlib import Path

from tests.interop.drivers.line_process import LineProcess
from tests.support.jars import PREVIOUS
from tests.support.kafka_tools import LOGGING, TOOLS

SOURCE = Path(__file__).resolve().parents[1] / "interop" / "java" / "Tools.java"


@dataclass(frozen=True)
class Finished:
    """Output and exit code of a tool."""

    returncode: int
    stdout: str
    stderr: str


class Running:
    """A tool at work."""

    def __init__(self, jvm: LineProcess, name: str) -> None:
        self._jvm = jvm
        self._name = name

    def wait(self) -> Finished:
        [(code, out, err)] = self._jvm.call("wait", self._name)
        return Finished(int(code), decoded(out), decoded(err))


class ToolJvm:
    """Tools may run side by side; each has its own input, outputs and exit code."""

    def __init__(self) -> None:
        options = (
            *("-Xmx512M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Dlog4j2.configurationFile={LOGGING}"),
            *("--add-opens", "java.base/java.lang=ALL-UNNAMED"),  # hooks of its shutdown are found there
        )
        self._jvm = LineProcess("java", *options, "-cp", f"{PREVIOUS}/*", str(SOURCE))
        self._ids = itertools.count()

    def start(self, tool: str, *arguments: str, stdin: str = "") -> Running:
        name = f"{tool}-{next(self._ids)}"
        self._jvm.call("start", name, TOOLS[tool], encoded(stdin), *map(encoded, arguments))
        return Running(self._jvm, name)

    def run(self, tool: str, *arguments: str, stdin: str = "") -> Finished:
        return self.start(tool, *arguments, stdin=stdin).wait()

    def close(self) -> None:
        self._jvm.close()


@functools.cache
def tool_jvm() -> ToolJvm:
    """The one that all tests of a process share; it ends with the process."""
    jvm = ToolJvm()
    atexit.register(jvm.close)
    return jvm


def run_tool(tool: str, *arguments: str, stdin: str = "") -> Finished:
    """Run a tool to its end; its exit code and output are the caller's to judge."""
    return tool_jvm().run(tool, *arguments, stdin=stdin)


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def decoded(text: str) -> str:
    return base64.b64decode(text).decode()
