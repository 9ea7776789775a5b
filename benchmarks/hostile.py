"""``python -m benchmarks.hostile``: time that another client waits while a broker handles one huge request.

For each array of each API, a new connection sends a request with as many elements as fit in `--bytes`. Meanwhile a
witness sends small requests on a connection of its own. The table shows the longest wait of the witness as a ratio to
its longest wait on an idle broker in the same run, the longest callback of the broker in CPU time, and the growth of
the broker's memory. Exit code 1 if the broker does not serve the witness at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import uvloop

from benchmarks.floods import Broker
from benchmarks.measured_broker import VARIABLE, Callback, measured_command, read_callbacks
from odradek import run_module
from odradek.protocol.messages import request_class
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from tests.support.hostile_values import array_paths, huge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from odradek.protocol.schema import Message
    from tests.support.hostile_values import HugeArray
    from tests.support.raw_client import RawClient

IDLE_SECONDS: Final = 3.0
RESPONSE_SECONDS_MAX: Final = 120.0
WITNESS_PAUSE_SECONDS: Final = 0.002
CALLBACK_MS_REPORTED: Final = 10.0
"""Milliseconds of CPU time of a callback above which its name is printed."""
SMALL: Final = ApiVersionsRequest("hostile", "1")


@dataclass(frozen=True)
class Row:
    case: HugeArray
    longest_ms: float
    seconds: float
    growth_mib: float
    outcome: str


def exchange(address: tuple[str, int], frame: bytes) -> str:
    """Send one frame and receive its response, in a thread: the witness must not wait for this process."""
    with socket.create_connection(address, timeout=RESPONSE_SECONDS_MAX) as connection:
        try:
            connection.sendall(frame)
            size = connection.recv(4, socket.MSG_WAITALL)
            if not size:
                return "connection closed"
            rest = int.from_bytes(size, "big")
            while rest and (received := connection.recv(min(rest, 65_536))):
                rest -= len(received)
        except ConnectionError:
            return "connection closed"
        return f"response of {int.from_bytes(size, 'big') / 2**20:.1f} MiB"


async def served(broker: Broker, *, lowest: bool = False) -> list[tuple[type[Message], int]]:
    """Return the request classes and highest versions that the broker announces, or its lowest versions.

    The broker announces Produce from version 0 on, as Kafka does, but the lowest version that exists is 3.
    """
    client = await broker.connect("versions")
    rows = [(request_class(row.api_key), row) for row in (await client.call(SMALL, 4)).api_keys]
    client.close()
    return [(cls, max(row.min_version, cls.MIN_VERSION) if lowest else row.max_version) for cls, row in rows]


class Witness:
    """Client that sends one small request after the other."""

    def __init__(self, client: RawClient) -> None:
        self._client = client
        self._longest_s = 0.0
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            began_s = time.perf_counter()
            await self._client.call(SMALL, 4)
            self._longest_s = max(self._longest_s, time.perf_counter() - began_s)
            await asyncio.sleep(WITNESS_PAUSE_SECONDS)

    def take_longest_ms(self) -> float:
        """Return the longest wait since the last call, in milliseconds."""
        if self._task.done():
            self._task.result()
        longest_s, self._longest_s = self._longest_s, 0.0
        return 1000 * longest_s

    async def stop(self) -> None:
        self._task.cancel()
        self._client.close()


async def run_case(broker: Broker, witness: Witness, case: HugeArray) -> Row:
    memory_mib, began_s = broker.resident_mib, time.perf_counter()
    await asyncio.sleep(10 * WITNESS_PAUSE_SECONDS)  # the witness waited while this process made the request
    witness.take_longest_ms()
    outcome = await asyncio.to_thread(exchange, broker.address, case.frame)
    seconds = time.perf_counter() - began_s
    await asyncio.sleep(10 * WITNESS_PAUSE_SECONDS)
    return Row(case, witness.take_longest_ms(), seconds, broker.resident_mib - memory_mib, outcome)


def longest_callback(callbacks: Path, since_s: float) -> Callback:
    """Return the callback with the most CPU time since a monotonic time. Its time is 0 if none was recorded."""
    found = read_callbacks(callbacks.iterdir(), since_s)
    return found[0] if found else Callback(since_s, 0.0, "")


async def run(size: int, chosen: Sequence[str], *, lowest: bool = False) -> int:
    with tempfile.TemporaryDirectory(prefix="odradek-hostile-") as directory:
        callbacks = Path(directory) / "callbacks"
        callbacks.mkdir()
        os.environ[VARIABLE] = str(callbacks)
        run_module.command = measured_command
        broker = Broker(Path(directory))
        try:
            await broker.ready()
            classes = await served(broker, lowest=lowest)
            witness = Witness(await broker.connect("witness"))
            await asyncio.sleep(IDLE_SECONDS)
            idle_ms = witness.take_longest_ms()
            print(f"idle: longest wait {idle_ms:.1f} ms, resident {broker.resident_mib:.0f} MiB")
            print(
                f"{'array':<58} {'elements':>9} {'MiB':>5} {'wait':>8} {'ratio':>6} {'callback':>8} {'s':>6}"
                f" {'growth':>7}  outcome"
            )
            for cls, version in classes:
                if chosen and not any(name in cls.NAME for name in chosen):
                    continue
                for path in array_paths(cls, version):
                    since_s = time.monotonic()
                    row = await run_case(broker, witness, huge(cls, version, path, size))
                    callback = longest_callback(callbacks, since_s)
                    name = f"{cls.NAME.removesuffix('Request')}.{row.case.path}"
                    print(
                        f"{name:<58} {row.case.count:>9,} {len(row.case.frame) / 2**20:>5.1f} {row.longest_ms:>5.0f} ms"
                        f" {row.longest_ms / idle_ms:>6.1f} {callback.cpu_ms:>5.0f} ms"
                        f" {row.seconds:>6.2f} {row.growth_mib:>7.0f}  {row.outcome}",
                        flush=True,
                    )
                    if callback.cpu_ms > CALLBACK_MS_REPORTED:
                        print(f"    {callback.name}")
            await witness.stop()
        finally:
            code = broker.stop()
    return 1 if code else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hostile", description=__doc__)
    parser.add_argument("--bytes", type=int, default=2_000_000, help="size of each request (default 2,000,000)")
    parser.add_argument("--lowest", action="store_true", help="the lowest version of each API, not the highest")
    parser.add_argument("apis", nargs="*", help="only APIs whose names contain one of these")
    options = parser.parse_args()
    return uvloop.run(run(options.bytes, options.apis, lowest=options.lowest))


if __name__ == "__main__":
    sys.exit(main())
