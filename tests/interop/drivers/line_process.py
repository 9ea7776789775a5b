"""A client of another language as a process with a line protocol.

A command is one line. Fields are separated by tabs, and bytes are in base64.
"""

from __future__ import annotations

import base64
import os
import subprocess
import tempfile

from tests.interop.drivers.base import TIMEOUT_S, Fenced, Message

ERROR_OUTPUT_BYTES = 2_000
FENCED = ("ProducerFencedException", "InvalidProducerEpochException", "InvalidPidMappingException", "Fenced: ")


class ClientFailed(Exception):
    """An error of the client, with its type and messages."""


class LineProcess:
    """The process of a client. It prints `ok` when it is ready. Each reply is lines that end with `ok` or `error`."""

    def __init__(self, *command: str) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  the file is open as long as the process runs
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )
        try:
            self._read_reply()
        except BaseException:
            self.kill()  # an open pipe would cause a ResourceWarning in a later test
            raise

    def call(self, *fields: str) -> list[list[str]]:
        """Send a command, and return the rows of its reply. Raise Fenced or ClientFailed."""
        assert self._process.stdin is not None
        self._process.stdin.write("\t".join(fields) + "\n")
        self._process.stdin.flush()
        return self._read_reply()

    def _read_reply(self) -> list[list[str]]:
        assert self._process.stdout is not None
        records: list[list[str]] = []
        for line in self._process.stdout:
            fields = line.rstrip("\n").split("\t")
            if fields[0] == "ok":
                return records
            if fields[0] == "error":
                raise (Fenced if any(name in fields[2] for name in FENCED) else ClientFailed)(fields[2])
            records.append(fields[1:])
        code = self._process.wait(TIMEOUT_S)
        raise ClientFailed(f"the client's process ended with {code}: {self._error_output()}")

    def _error_output(self) -> str:
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - ERROR_OUTPUT_BYTES))
        return self._errors.read().decode(errors="replace")

    def kill(self) -> None:
        """Send SIGKILL to the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.kill()
        self._process.wait(TIMEOUT_S)
        self._process.stdin.close()
        self._process.stdout.close()
        self._errors.close()

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(TIMEOUT_S)
        self._process.stdout.close()
        self._errors.close()


def text(content: bytes | None) -> str:
    return "-" if content is None else base64.b64encode(content).decode()


def content(encoded: str) -> bytes | None:
    return None if encoded == "-" else base64.b64decode(encoded)


def as_message(row: list[str]) -> Message:
    headers = tuple((row[index], content(row[index + 1])) for index in range(5, len(row), 2))
    return Message(int(row[0]), int(row[1]), int(row[2]), content(row[3]), content(row[4]), headers)
