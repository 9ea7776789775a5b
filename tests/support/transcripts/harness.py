"""Replay golden transcripts: text files of commands and of the output that the commands produce.

A transcript consists of blocks, separated by one blank line. A block holds comments (lines that begin with `#`) and
commands, one per line; then a line `----`; then the output of these commands. A block of comments alone has neither
separator nor output.

Each kind of transcript has an `Interpreter`, which implements every command as a method `do_<command>`. The kinds are
listed in `tests/scenarios/test_transcripts.py`.

`pytest tests/scenarios --update-transcripts` replaces the output in the files by the actual output. Review the
difference line by line against the rules of the protocol before you commit it.
"""

from __future__ import annotations

import asyncio
import inspect
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable

SEPARATOR = "----"
COMMENT = "#"


@dataclass(frozen=True)
class Block:
    """One block of a transcript: its comments and commands, and the output of the commands."""

    head: tuple[str, ...]
    output: tuple[str, ...]

    @property
    def commands(self) -> list[str]:
        return [line for line in self.head if not line.startswith(COMMENT)]

    def render(self) -> str:
        return "\n".join([*self.head, *([SEPARATOR, *self.output] if self.commands else [])])


class Interpreter(ABC):
    """Execute the commands of one transcript on the object under test."""

    empty_output: ClassVar[tuple[str, ...]] = ()
    """Output of a block whose commands produce none."""

    async def execute(self, command: str) -> list[str]:
        """Execute `command` and return its output."""
        result = self.dispatch(command)
        if inspect.isawaitable(result):
            result = await result
        await asyncio.sleep(0)
        return self.collect(result)

    def dispatch(self, command: str) -> Any:
        """Call the method of `command` and return its result."""
        word, *arguments = command.split()
        return getattr(self, f"do_{word.replace('-', '_')}")(*arguments)

    @abstractmethod
    def collect(self, result: Any) -> list[str]:
        """Return the output since the last call. `result` is the result of the command's method."""


def parse(text: str) -> list[Block]:
    blocks = []
    for block in text.strip("\n").split("\n\n"):
        lines = block.split("\n")
        at = lines.index(SEPARATOR) if SEPARATOR in lines else len(lines)
        blocks.append(Block(tuple(lines[:at]), tuple(lines[at + 1 :])))
    return blocks


def render(blocks: Iterable[Block]) -> str:
    return "\n\n".join(block.render() for block in blocks) + "\n"


async def replay(interpreter: Interpreter, blocks: Iterable[Block]) -> list[Block]:
    """Return the blocks with the output that their commands produce now."""
    replayed = []
    for block in blocks:
        output = [line for command in block.commands for line in await interpreter.execute(command)]
        replayed.append(Block(block.head, tuple(output) or interpreter.empty_output))
    return replayed
