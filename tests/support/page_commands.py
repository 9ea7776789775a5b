"""Run the commands of a page of docs/ in the order of the page, in one directory.

A page is a sequence of fenced blocks. Their language says what happens:

- `sh`: bash runs the block with `set -e` and the fail-over of pipes. Its output must have the lines of a `text` block
  that follows. `...` in such a line stands for any characters.
- A block with `title="NAME"` is written to the file NAME.
- `python` without a title: Python runs the block as a program.

The default ports of `odradek up` in the blocks become free ports. `pip install` is not run: the named extras of the
package must exist, and `missing_packages` compares the named packages with the imports of the programs.
"""

from __future__ import annotations

import ast
import importlib.metadata
import os
import random
import re
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from odradek.local.ports import PORT_MIN, ephemeral_min

BLOCK: Final = re.compile(
    r"^```(?P<language>\w+)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
INSTALLATION: Final = re.compile(
    r"^pip install '?(?P<package>[\w.][\w.-]*)(?:\[(?P<extras>[\w,]+)\])?'?(?P<further>(?: \w[\w.-]*)*)(?:\s+#.*)?$"
)
OWN_NAMES: Final = ("odradek", ".")
"""Names of this package in `pip install`."""
EXTRA: Final = re.compile(r"extra == ['\"](\w+)['\"]")
PORT: Final = re.compile(r"(?<!\d)(?:9|10|11)09[2-7](?!\d)")
"""Ports of two local clusters with three brokers: 9092 to 9097 for clients, and those of metrics and brokers."""
FIRST_PORT: Final = 9092
CLIENT_PORTS: Final = 6
PORT_DISTANCES: Final = (0, 1_000, 2_000)
"""Distances from the client port of a broker to its ports for clients, metrics and brokers."""
UP: Final = re.compile(r"^odradek up\b(?!.*--port)", re.MULTILINE)
ANYTHING: Final = re.escape("...")
TIMEOUT_S: Final = 500.0
"""Maximum duration of a block. Spark needs most of it on a loaded machine."""


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    language: str
    title: str | None
    text: str


def blocks(page: str) -> list[Block]:
    """Return the fenced blocks of a page in their order."""
    return [Block(match["language"], match["title"], match["text"]) for match in BLOCK.finditer(page)]


def missing_lines(expected: str, output: str) -> list[str]:
    """Return the lines of a `text` block that no line of the output has as whole words."""
    lines = [line for line in expected.splitlines() if line.strip()]
    patterns = [r"[^\S\n]+".join(re.escape(word).replace(ANYTHING, ".*") for word in line.split()) for line in lines]
    return [
        line for line, pattern in zip(lines, patterns, strict=True) if not re.search(rf"(?<!\S){pattern}(?!\S)", output)
    ]


def reserve_block(stack: ExitStack) -> list[int]:
    """Reserve consecutive client ports, and those of metrics and brokers above them, until the end of `stack`."""
    generator = random.SystemRandom()
    highest = ephemeral_min() - PORT_DISTANCES[-1] - CLIENT_PORTS
    while True:
        first = generator.randrange(PORT_MIN, highest)
        clients = list(range(first, first + CLIENT_PORTS))
        with ExitStack() as attempt:
            try:
                for port in (client + distance for client in clients for distance in PORT_DISTANCES):
                    reserved = attempt.enter_context(socket.socket())
                    # A broker can listen on the port meanwhile (odradek/local/ports.py).
                    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    reserved.bind(("127.0.0.1", port))
            except OSError:
                continue
            stack.enter_context(attempt.pop_all())
            return clients


class PageRun:
    """Runs the blocks of pages in `directory`, with `ports` in place of 9092 and its successors."""

    def __init__(self, directory: Path, ports: list[int], path: list[Path] | None = None) -> None:
        self._directory = directory
        self._ports = ports
        self._output = ""
        self._groups: list[int] = []
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("ODRADEK_")}
        folders = [*map(str, path or []), os.path.dirname(sys.executable), os.environ["PATH"]]  # noqa: PTH120
        self._environment |= {
            "PATH": ":".join(folders), "XDG_CONFIG_HOME": str(directory / "config"), "NO_COLOR": "1", "COLUMNS": "200",
        }  # fmt: skip

    def close(self) -> None:
        """End the processes that the blocks left in the background. Local clusters are in sessions of their own."""
        for group in self._groups:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)

    def run(self, page: str) -> int:
        """Run all blocks of a page, and return how many were programs."""
        return sum(self.run_block(block) for block in blocks(page))

    def run_block(self, block: Block) -> bool:
        """Return True if the block was a program. Raise AssertionError if it failed or printed something else."""
        text = self.localized(block.text)
        if block.title is not None:
            file = self._directory / block.title
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        elif block.language == "sh":
            self._execute(["bash", "-euo", "pipefail", "-c", text], text)
            return True
        elif block.language == "python":
            self._execute([sys.executable, "-c", text], text)
            return True
        elif block.language == "text":
            missing = missing_lines(text, self._output)
            assert missing == [], f"the page shows lines that the command did not print\n{self._output}"
        return False

    def localized(self, text: str) -> str:
        """Return the text of a block with the ports of this run, and without installations."""
        kept = [line for line in text.splitlines(keepends=True) if not is_installation(line.strip())]
        text = UP.sub(f"odradek up --port {self._ports[0]}", "".join(kept))
        return PORT.sub(lambda found: str(self._replacement(int(found[0]))), text)

    def _replacement(self, port: int) -> int:
        thousands, number = divmod(port - FIRST_PORT, 1_000)
        return self._ports[number] + thousands * 1_000

    def _execute(self, command: list[str], text: str) -> None:
        with (self._directory / "output").open("w+", encoding="utf-8") as output:
            # A file and not a pipe: brokers in the background keep standard output open.
            process = subprocess.Popen(
                command, cwd=self._directory, env=self._environment, stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            self._groups.append(process.pid)
            try:
                code = process.wait(TIMEOUT_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                code = process.wait()
            output.seek(0)
            self._output = output.read()
        assert code == 0, f"{text}\n{self._output}"


def is_installation(line: str) -> bool:
    """Return True for `pip install` of a package. Raise AssertionError if the package does not have these extras."""
    match = INSTALLATION.match(line)
    if match is None:
        return False
    if match["package"] in OWN_NAMES:
        known = importlib.metadata.metadata("odradek").get_all("Provides-Extra") or []
        assert not extras_of(match) - set(known), line
    return True


def extras_of(match: re.Match[str]) -> set[str]:
    """Return the extras that an installation names."""
    return set((match["extras"] or "").split(",")) - {""}


def missing_packages(page: str) -> set[str]:
    """Return the modules that programs of a page import, and that its `pip install` lines do not install."""
    installed, imported = set(), set[str]()
    own = {Path(block.title).stem for block in blocks(page) if block.title is not None}
    for block in blocks(page):
        if block.language == "sh":
            installed |= {name for line in block.text.splitlines() for name in installed_by(line.strip())}
        elif block.language == "python":
            imported |= imported_by(block.text)
    distributions = importlib.metadata.packages_distributions()
    foreign = imported - own - sys.stdlib_module_names - {"odradek"}
    return {name for name in foreign if not {normalized(each) for each in distributions.get(name, ())} & installed}


def installed_by(line: str) -> set[str]:
    """Return the packages that an installation names, with the requirements of this package and its named extras."""
    match = INSTALLATION.match(line)
    if match is None:
        return set()
    names = {match["package"], *match["further"].split()}
    if match["package"] in OWN_NAMES:
        for requirement in importlib.metadata.requires("odradek") or ():
            extra = EXTRA.search(requirement)
            name = re.match(r"[\w.-]+", requirement)
            if name is not None and (extra is None or extra[1] in extras_of(match)):
                names.add(name[0])
    return set(map(normalized, names))


def imported_by(program: str) -> set[str]:
    """Return the top-level modules that a program imports."""
    names = set()
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names.add(node.module.partition(".")[0])
    return names


def normalized(package: str) -> str:
    """Return the name of a package as PyPI compares it."""
    return re.sub(r"[-_.]+", "-", package).lower()
