"""The same command of a tool against two clusters in the same run: what it prints must be the same.

Nothing that a tool prints is stored. What must differ is rubbed out of both.
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
"""Ids, directories, members, moments, ports."""
ADDRESS = "{bootstrap}"
"""Stands in arguments for where the cluster is; without it tools are told by --bootstrap-server, first of all."""


def rubbed(text: str) -> list[str]:
    """Lines with what must differ taken out, blanks folded, no stack traces."""
    for pattern, instead in VARYING:
        text = pattern.sub(instead, text)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    return [line for line in lines if line and not line.startswith(("at ", "... ", "SLF4J"))]


class SideBySide:
    """Clusters by name, the first one judged by the other."""

    def __init__(self, tools: ToolJvm, bootstraps: Mapping[str, str]) -> None:
        self.tools = tools
        self.bootstraps = dict(bootstraps)

    def start(self, tool: str, *arguments: str, stdin: str = "") -> dict[str, Running]:
        asked = arguments if any(ADDRESS in each for each in arguments) else ("--bootstrap-server", ADDRESS, *arguments)
        return {
            name: self.tools.start(tool, *(each.replace(ADDRESS, bootstrap) for each in asked), stdin=stdin)
            for name, bootstrap in self.bootstraps.items()
        }

    def finished(self, tool: str, *arguments: str, stdin: str = "") -> dict[str, Finished]:
        return {name: running.wait() for name, running in self.start(tool, *arguments, stdin=stdin).items()}

    def both(self, tool: str, *arguments: str, stdin: str = "") -> dict[str, list[str]]:
        """By cluster: the exit code, and the lines."""
        finished = self.finished(tool, *arguments, stdin=stdin)
        return {
            name: [f"exit {each.returncode}", *rubbed(each.stdout), *rubbed(each.stderr)]
            for name, each in finished.items()
        }

    def same(self, tool: str, *arguments: str, stdin: str = "", about: str = "", ordered: bool = True) -> list[str]:
        """What both have printed. With `about` only the lines count that have it in them (others may be there, of other
        tests); what is a set without an order may be compared as one."""
        found = self.both(tool, *arguments, stdin=stdin)
        lines = {
            name: [each[0], *sorted_unless(ordered, [line for line in each[1:] if about in line])]
            for name, each in found.items()
        }
        first, referee = lines.values()
        assert first == referee, "\n".join([tool, *difflib.ndiff(referee, first)])
        return first

    def until(self, ready: Callable[[list[str]], bool], tool: str, *arguments: str, attempts: int = 100) -> None:
        """Ask until both say what is waited for."""
        for _ in range(attempts):
            found = self.both(tool, *arguments)
            if all(ready(lines) for lines in found.values()):
                return
        raise AssertionError(found)


def sorted_unless(ordered: bool, lines: list[str]) -> list[str]:
    return lines if ordered else sorted(lines)
