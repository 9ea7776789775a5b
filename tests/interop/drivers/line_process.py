"""A client of another language behind a line protocol: one command a line, tabs between fields, bytes in base64."""

from __future__ import annotations

import base64
import os
import subprocess
import tempfile

from tests.interop.drivers.base import TIMEOUT_S, Fenced, Message

LAST_WORDS_BYTES = 2_000
FENCED = ("ProducerFencedException", "InvalidProducerEpochException", "InvalidPidMappingException", "Fenced: ")


class ClientFailed(Exception):
    """An error of the client: its kind and messages."""


class LineProcess:
    """The process. It says ``ok`` once it is ready, and answers every command with lines up to ``ok`` or ``error``."""

    def __init__(self, *command: str) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  it lives as long as the process
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )
        try:
            self._answer()
        except BaseException:
            self.kill()  # nobody else has it: what is left open here fails some later test
            raise

    def call(self, *fields: str) -> list[list[str]]:
        """The rows of the answer. Raises Fenced, ClientFailed."""
        assert self._process.stdin is not None
        self._process.stdin.write("\t".join(fields) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> list[list[str]]:
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
        raise ClientFailed(f"the client's process ended with {code}: {self._last_words()}")

    def _last_words(self) -> str:
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - LAST_WORDS_BYTES))
        return self._errors.read().decode(errors="replace")

    def kill(self) -> None:
        """SIGKILL."""
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
    headers = tuple((row[at], content(row[at + 1])) for at in range(5, len(row), 2))
    return Message(int(row[0]), int(row[1]), int(row[2]), content(row[3]), content(row[4]), headers)
