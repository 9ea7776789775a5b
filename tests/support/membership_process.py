"""One member of a failure detecting cluster as a process on uvloop: `python -m tests.support.membership_process ID
PORT1 PORT2 ...`.

Prints "ready", then a line for every change: `WHO STATE EVENT`. Ends with its standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from random import Random
from typing import TYPE_CHECKING

import uvloop

from odradek.broker.process.clock import SystemClock
from odradek.cluster.membership.admission import Admission
from odradek.cluster.membership.core import MembershipCore
from odradek.cluster.membership.driver import MembershipDriver
from odradek.cluster.membership.members import Change, MembershipConfig, MemberSpec
from odradek.cluster.membership.messages import Codec
from odradek.runtime.tasks import Tasks

if TYPE_CHECKING:
    from collections.abc import Callable

HOST = "127.0.0.1"
LONG_AGO_MS = -(10**9)


def member(
    node_id: int,
    ports: list[int],
    tasks: Tasks,
    on_change: Callable[[Change], None],
    *,
    cluster: str = "a cluster",
    host: str = HOST,
    config: MembershipConfig | None = None,
    verifies_addresses: bool = False,
) -> MembershipDriver:
    """Node `node_id` listens on `ports[node_id - 1]`. All nodes are alive; incarnation and epoch are the node id."""
    clock = SystemClock()
    core = MembershipCore(
        node_id,
        node_id,
        rng=Random(node_id),
        last_contact_ms=lambda _: LONG_AGO_MS,
        now_ms=clock.monotonic_ms(),
        config=config or MembershipConfig(),
    )

    async def probe_by_tcp(target: int) -> None:
        """Do nothing: no node listens on TCP in this test."""

    driver = MembershipDriver(
        core,
        Codec(cluster),
        Admission(node_id, Random(), challenge_pause_ms=100, verifies_addresses=verifies_addresses),
        address_of=lambda node: (host, ports[node - 1]) if node <= len(ports) else None,
        probe_by_tcp=probe_by_tcp,
        on_change=on_change,
        clock=clock,
        tasks=tasks,
    )
    driver.set_members([MemberSpec(node, node, node) for node in range(1, len(ports) + 1)])
    return driver


async def main(node_id: int, ports: list[int]) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    tasks = Tasks(lambda name, error: print(f"{name}: {error!r}", file=sys.stderr, flush=True))

    def print_change(change: Change) -> None:
        print(change.node_id, change.state.value, change.event.name, flush=True)

    driver = member(node_id, ports, tasks, print_change)
    await driver.start(HOST, ports[node_id - 1])
    loop.add_reader(sys.stdin, ended.set)
    print("ready", flush=True)
    await ended.wait()
    driver.close()
    await tasks.cancel_all()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(int(sys.argv[1]), [int(port) for port in sys.argv[2:]]))
