"""Driver of franz-go, compiled at first use. Tests are skipped if Go or its modules are missing."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.interop.drivers.line_process import LineProcess, as_message, text

if TYPE_CHECKING:
    from tests.interop.drivers.base import GroupConsumer, GroupOptions, Message, ProducerOptions

SOURCE = Path(__file__).resolve().parents[1] / "go"
BINARY = Path(__file__).resolve().parents[3] / "build" / "interop" / "franz-go"
BUILD_TIMEOUT_S = 300.0


def build(package: str = ".", binary: Path = BINARY) -> Path:
    """Compile a program, and return its path. Skip the test without Go or the modules; fail on compile errors."""
    if shutil.which("go") is None:
        pytest.skip("NOT TESTED: franz-go, because `go` is not on PATH")
    fetched = _go("mod", "download")
    if fetched.returncode:
        pytest.skip(f"NOT TESTED: franz-go, because its modules cannot be fetched: {fetched.stderr.strip()[-300:]}")
    built = _go("build", "-o", str(binary), package)
    assert built.returncode == 0, built.stderr
    return binary


def _go(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["go", *arguments], cwd=SOURCE, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False
    )


class GoProducer:
    def __init__(self, process: LineProcess, name: str, bootstrap: str, options: ProducerOptions) -> None:
        self._process = process
        self._name = name
        self._call(
            "producer",
            bootstrap,
            options.codec,
            str(options.idempotent).lower(),
            options.transactional_id or "-",
            str(options.transaction_timeout_ms),
        )

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        partition: int = 0,
        key: bytes | None = None,
        headers: tuple[tuple[str, bytes | None], ...] = (),
        timestamp: int | None = None,
    ) -> None:
        flat = [field for name, content in headers for field in (name, text(content))]
        when = "-" if timestamp is None else str(timestamp)
        self._call("send", topic, str(partition), when, text(key), text(value), *flat)

    def flush(self) -> None:
        self._call("flush")

    def init(self) -> None:
        self._call("init")

    def begin(self) -> None:
        self._call("begin")

    def commit(self) -> None:
        self._call("commit")

    def abort(self) -> None:
        self._call("abort")

    def send_offsets(self, consumer: GroupConsumer) -> None:
        raise NotImplementedError("this driver has no groups")

    def close(self) -> None:
        self._call("close")

    def _call(self, command: str, *fields: str) -> None:
        self._process.call(command, self._name, *fields)


class GoDriver:
    name = "franz-go"

    def __init__(self) -> None:
        self._process = LineProcess(str(build()))
        self._count = 0

    def producer(self, bootstrap: str, options: ProducerOptions) -> GoProducer:
        self._count += 1
        return GoProducer(self._process, f"producer-{self._count}", bootstrap, options)

    def member(self, bootstrap: str, topic: str, options: GroupOptions) -> GroupConsumer:
        raise NotImplementedError("this driver has no groups")

    def consume(self, bootstrap: str, topic: str, partitions: list[int], isolation: str) -> list[Message]:
        numbers = ",".join(str(partition) for partition in partitions)
        return [as_message(row) for row in self._process.call("consume", "-", bootstrap, topic, numbers, isolation)]

    def close(self) -> None:
        self._process.close()
