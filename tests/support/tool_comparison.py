"""Run the same command of a tool against Odradek and Apache Kafka, and compare the two outputs.

Outputs are not stored. Values that must differ are replaced in both.
"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.support.tool_jvm import Finished, Running, ToolJvm

UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
VARYING = [
    (re.compile(r"TopicId: \S+"), "TopicId: ID"),
    (re.compile(r'"log_dirs":\["/[^]]*\]'), '"log_dirs":DIRECTORIES'),
    (re.compile(rf"\b(?:\S*-)?{UUID}"), "MEMBER"),
    (re.compile(r"(?<![\w+/-])[\w+/-]{22}(?![\w+/-])"), "MEMBER"),
    (re.compile(r"\bconsumer-[\w.-]+-\d+\b"), "CLIENT"),
    (re.compile(r"\b1[67]\d{11}\b"), "TIME"),
    (re.compile(r"(?:127\.0\.0\.1|localhost):\d+"), "HOST:PORT"),
]
"""Patterns of values that differ between two clusters, and their replacements: ids, directories, times, addresses."""
ADDRESS = "{bootstrap}"
"""Placeholder of the bootstrap address in arguments. Without it, --bootstrap-server is added as the first argument."""


def comparable_lines(text: str) -> list[str]:
    """Return the lines with replaced VARYING values and single blanks, without empty lines and stack traces."""
    for pattern, instead in VARYING:
        text = pattern.sub(instead, text)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    return [line for line in lines if line and not line.startswith(("at ", "... ", "SLF4J"))]


class ToolComparison:
    """Two clusters by name. The output of a tool on the first must equal its output on the second."""

    def __init__(self, tools: ToolJvm, bootstraps: Mapping[str, str]) -> None:
        self.tools = tools
        self.bootstraps = dict(bootstraps)

    def start(self, tool: str, *arguments: str, stdin: str = "") -> dict[str, Running]:
        tool_arguments = (
            arguments if any(ADDRESS in item for item in arguments) else ("--bootstrap-server", ADDRESS, *arguments)
        )
        return {
            name: self.tools.start(tool, *(item.replace(ADDRESS, bootstrap) for item in tool_arguments), stdin=stdin)
            for name, bootstrap in self.bootstraps.items()
        }

    def finished(self, tool: str, *arguments: str, stdin: str = "") -> dict[str, Finished]:
        return {name: running.wait() for name, running in self.start(tool, *arguments, stdin=stdin).items()}

    def both(self, tool: str, *arguments: str, stdin: str = "") -> dict[str, list[str]]:
        """Return the exit code and the output lines per cluster."""
        finished = self.finished(tool, *arguments, stdin=stdin)
        return {
            name: [f"exit {item.returncode}", *comparable_lines(item.stdout), *comparable_lines(item.stderr)]
            for name, item in finished.items()
        }

    def same(self, tool: str, *arguments: str, stdin: str = "", about: str = "", ordered: bool = True) -> list[str]:
        """Assert that both clusters print the same lines, and return them.

        With `about`, only lines that contain it are compared. With `ordered` False, the order of lines is ignored.
        """
        outputs = self.both(tool, *arguments, stdin=stdin)
        lines = {
            name: [item[0], *sorted_unless(ordered, [line for line in item[1:] if about in line])]
            for name, item in outputs.items()
        }
        first, referee = lines.values()
        assert first == referee, "\n".join([tool, *difflib.ndiff(referee, first)])
        return first

    def until(self, ready: Callable[[list[str]], bool], tool: str, *arguments: str, attempts: int = 100) -> None:
        """Repeat the tool until `ready` returns True for the lines of both clusters."""
        for _ in range(attempts):
            outputs = self.both(tool, *arguments)
            if all(ready(lines) for lines in outputs.values()):
                return
        raise AssertionError(outputs)


def sorted_unless(ordered: bool, lines: list[str]) -> list[str]:
    return lines if ordered else sorted(lines)
