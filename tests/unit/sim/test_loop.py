"""The simulated event loop: virtual time, FIFO within a node, seeded order between nodes, deadlock and livelock."""

import asyncio
import gc
from collections.abc import Callable, Iterator
from random import Random

import pytest

from odradek.simulation.environment.loop import NODE, Deadlock, Livelock, SeamBypassed, SimLoop
from odradek.simulation.environment.network import FrameFault, Latency, Network
from odradek.simulation.environment.trace import Trace

LOOPS: list[SimLoop] = []


@pytest.fixture(autouse=True)
def _close_loops() -> Iterator[None]:
    yield
    while LOOPS:
        LOOPS.pop().close()


def make_loop(seed: int = 1, *, framed: bool = False, steps_max: int = 1_000_000) -> SimLoop:
    rng = Random(seed)
    LOOPS.append(SimLoop(rng, network=Network(rng, latency=Latency(), framed=framed), steps_max=steps_max))
    return LOOPS[-1]


def test_virtual_time_advances_to_the_next_timer() -> None:
    loop = make_loop()

    async def main() -> float:
        await asyncio.sleep(1000)
        return loop.time()

    assert 1000 <= loop.run_until_complete(main()) < 1000.1
    assert loop.steps < 10


def test_handles_of_one_node_run_in_order_and_nodes_interleave() -> None:
    orders = []
    for seed in range(5):
        loop = make_loop(seed)
        seen: list[str] = []
        for number in range(6):
            for node in ("a", "b"):
                loop.call_soon(seen.append, f"{node}{number}", context=loop.context_of(node))
        loop.call_later(1, loop.stop)
        loop.run_forever()
        assert [name for name in seen if name[0] == "a"] == [f"a{number}" for number in range(6)]
        assert [name for name in seen if name[0] == "b"] == [f"b{number}" for number in range(6)]
        orders.append(tuple(seen))
    assert len(set(orders)) > 1


def test_equal_deadlines_are_ordered_by_the_seed() -> None:
    def order(seed: int) -> tuple[int, ...]:
        loop = make_loop(seed)
        seen: list[int] = []
        for number in range(8):
            loop.call_at(5.0, seen.append, number)
        loop.call_later(6, loop.stop)
        loop.run_forever()
        return tuple(seen)

    assert order(1) == order(1)
    assert len({order(seed) for seed in range(6)}) > 1


def test_deadlock_names_the_waiting_task() -> None:
    loop = make_loop()

    async def waits_endlessly() -> None:
        await loop.create_future()

    with pytest.raises(Deadlock, match="waits_endlessly"):
        loop.run_until_complete(waits_endlessly())
    for task in loop.tasks_of("world"):
        task.cancel()
    loop.call_later(1, loop.stop)
    loop.run_forever()


def test_livelock_is_capped() -> None:
    loop = make_loop(steps_max=1000)

    def again() -> None:
        loop.call_soon(again)

    again()
    with pytest.raises(Livelock):
        loop.run_forever()


def test_thread_request_raises_seam_bypassed() -> None:
    loop = make_loop()

    async def main() -> None:
        await asyncio.to_thread(print, "no")

    with pytest.raises(SeamBypassed):
        loop.run_until_complete(main())


def test_removed_node_never_runs_again() -> None:
    loop = make_loop()
    seen: list[str] = []
    context = loop.context_of("node#1")
    loop.call_soon(seen.append, "ready", context=context)
    loop.call_later(1, seen.append, "timer", context=context)
    loop.remove_node("node#1")
    loop.call_soon(seen.append, "new", context=context)
    loop.call_later(2, loop.stop)
    loop.run_forever()
    assert seen == []


def test_stalled_node_runs_its_handles_after_resuming() -> None:
    loop = make_loop()
    seen: list[tuple[str, float]] = []

    def note(node: str) -> None:
        seen.append((node, round(loop.time(), 2)))

    for node in ("still", "alive"):
        for delay in (0.5, 1.5):
            loop.call_later(delay, note, node, context=loop.context_of(node))
    loop.stall("still", 5.0)
    settle(loop, 10)
    assert seen == [("alive", 0.5), ("alive", 1.5), ("still", 5.0), ("still", 5.0)]


def test_tasks_inherit_their_node() -> None:
    loop = make_loop()

    async def child() -> str:
        return NODE.get()

    async def parent() -> str:
        return await asyncio.create_task(child())

    assert loop.run_until_complete(loop.spawn("n", parent(), "parent")) == "n"


def test_unhandled_exception_is_collected() -> None:
    loop = make_loop()
    loop.call_soon(int, "x")
    loop.call_later(1, loop.stop)
    loop.run_forever()
    assert "ValueError" in loop.describe_failures()[0]


def drop_failed_future(loop: SimLoop) -> None:
    """Create a future in a cycle, and give it an exception that nothing reads."""
    future = loop.create_future()
    cycle: list[object] = [future]
    cycle.append(cycle)
    future.set_exception(ValueError("dropped"))


async def drop_failed_task(loop: SimLoop) -> None:
    """Await a failed task without reading its exception, and remove the node, which held the last references."""

    async def fail() -> None:
        raise ValueError("dropped")

    await asyncio.wait([loop.create_task(fail())])
    loop.call_soon(loop.remove_node, NODE.get(), context=loop.context_of("other"))


@pytest.fixture
def _no_collections() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_no_collections")
@pytest.mark.parametrize("failing", [drop_failed_future, drop_failed_task, lambda _: int("x")])
def test_a_failure_belongs_to_the_node_that_caused_it(failing: Callable[[SimLoop], object]) -> None:
    loop = make_loop()

    if asyncio.iscoroutinefunction(failing):
        loop.spawn("owner", failing(loop), "owner")
    else:
        loop.call_soon(failing, loop, context=loop.context_of("owner"))
    loop.call_later(1, gc.collect, context=loop.context_of("other"))
    loop.call_later(2, loop.stop)
    loop.run_forever()
    assert [failure["node"] for failure in loop.failures] == ["owner"]


@pytest.mark.usefixtures("_no_collections")
def test_a_failure_that_no_collection_has_reported_is_found_at_the_end() -> None:
    loop = make_loop()
    drop_failed_future(loop)
    assert loop.failures == []
    loop.collect_unread()
    assert len(loop.failures) == 1


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while line := await reader.readline():
        writer.write(line.upper())
        await writer.drain()
    writer.close()


def run_echo(seed: int) -> tuple[str, int]:
    loop = make_loop(seed)

    async def client(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", 9000)
        for _ in range(10):
            writer.write(b"hello %d\n" % number)
            assert await reader.readline() == b"HELLO %d\n" % number
        writer.close()
        await writer.wait_closed()

    async def main() -> None:
        server = await asyncio.start_server(echo, "127.0.0.1", 9000)
        await asyncio.gather(*(client(number) for number in range(5)))
        server.close()

    loop.run_until_complete(main())
    settle(loop)
    return loop.trace.digest(), loop.steps


def test_asyncio_streams_run_and_equal_seeds_have_equal_traces() -> None:
    assert run_echo(3) == run_echo(3)
    assert run_echo(3)[0] != run_echo(4)[0]


class Recorder(asyncio.Protocol):
    def __init__(self) -> None:
        self.received = b""
        self.lost: Exception | str | None = "connected"
        self.paused = 0
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = exc

    def pause_writing(self) -> None:
        self.paused += 1

    def resume_writing(self) -> None:
        self.paused -= 1


class Buffered(asyncio.BufferedProtocol):
    """Protocol that reads through a buffer of three bytes."""

    def __init__(self) -> None:
        self.buffer = bytearray(3)
        self.received = b""

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self.buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self.received += bytes(self.buffer[:nbytes])


def connect_pair(
    loop: SimLoop, server_factory: Callable[[], asyncio.BaseProtocol]
) -> tuple[Recorder, asyncio.Transport]:
    async def main() -> tuple[Recorder, asyncio.Transport]:
        await loop.create_server(server_factory, "127.0.0.1", 9000)
        transport, protocol = await loop.create_connection(Recorder, "127.0.0.1", 9000)
        assert isinstance(protocol, Recorder)
        return protocol, transport

    return loop.run_until_complete(main())


def settle(loop: SimLoop, seconds: float = 10) -> None:
    loop.call_later(seconds, loop.stop)
    loop.run_forever()


def test_buffered_protocols_get_everything_in_order() -> None:
    loop = make_loop()
    server = Buffered()
    _, transport = connect_pair(loop, lambda: server)
    transport.writelines([b"abcdefg", b"hij"])
    settle(loop)
    assert server.received == b"abcdefghij"


def test_paused_reader_pauses_the_writer() -> None:
    loop = make_loop()
    server = Recorder()
    client, transport = connect_pair(loop, lambda: server)
    settle(loop)
    assert server.transport is not None
    server.transport.pause_reading()
    transport.write(b"x" * 100_000)
    settle(loop)
    assert (client.paused, server.received) == (1, b"")
    server.transport.resume_reading()
    settle(loop)
    assert (client.paused, len(server.received)) == (0, 100_000)


def test_close_delivers_written_data_and_abort_resets() -> None:
    loop = make_loop()
    server = Recorder()
    client, transport = connect_pair(loop, lambda: server)
    transport.write(b"last words")
    transport.close()
    settle(loop)
    assert (server.received, server.lost, client.lost) == (b"last words", None, None)

    server = Recorder()
    loop = make_loop()
    client, transport = connect_pair(loop, lambda: server)
    settle(loop)
    transport.abort()
    settle(loop)
    assert isinstance(server.lost, ConnectionResetError)
    assert client.lost is None


def test_reset_all_resets_connections_and_refuses_new_ones() -> None:
    loop = make_loop()
    server = Recorder()
    client, _ = connect_pair(loop, lambda: server)
    settle(loop)
    assert loop.network.reset_all(refuse_seconds=5) == 1
    settle(loop, 1)
    assert isinstance(client.lost, ConnectionResetError)
    assert isinstance(server.lost, ConnectionResetError)
    with pytest.raises(ConnectionRefusedError):
        loop.run_until_complete(loop.create_connection(Recorder, "127.0.0.1", 9000))
    settle(loop, 10)
    loop.run_until_complete(loop.create_connection(Recorder, "127.0.0.1", 9000))


def frame(api_key: int, correlation_id: int, body: bytes = b"body") -> bytes:
    payload = api_key.to_bytes(2, "big") + b"\0\0" + correlation_id.to_bytes(4, "big") + body
    return len(payload).to_bytes(4, "big") + payload


def test_held_frame_arrives_later_on_another_connection() -> None:
    loop = make_loop(framed=True)
    servers: list[Recorder] = []

    def accept() -> Recorder:
        servers.append(Recorder())
        return servers[-1]

    client, transport = connect_pair(loop, accept)
    loop.network.faults.append(FrameFault("hold_request", (26,), delay=3.0))
    transport.write(frame(0, 1) + frame(26, 2) + frame(0, 3))
    settle(loop, 2)
    assert servers[0].received == frame(0, 1)
    assert isinstance(client.lost, ConnectionResetError)
    settle(loop, 3)
    assert servers[1].received == frame(26, 2)


def test_lost_response_resets_after_the_request_was_delivered() -> None:
    loop = make_loop(framed=True)
    server = Recorder()
    client, transport = connect_pair(loop, lambda: server)
    loop.network.faults.append(FrameFault("lose_response", (22,)))
    transport.write(frame(22, 7))
    settle(loop, 1)
    assert server.received == frame(22, 7)
    assert server.transport is not None
    server.transport.write((8).to_bytes(4, "big") + (7).to_bytes(4, "big") + b"answ")
    settle(loop, 1)
    assert client.received == b""
    assert isinstance(client.lost, ConnectionResetError)


@pytest.mark.parametrize("kind", ["tear_request", "tear_response"])
def test_torn_frame_arrives_partially_before_the_reset(kind: str) -> None:
    loop = make_loop(framed=True)
    server = Recorder()
    client, transport = connect_pair(loop, lambda: server)
    settle(loop, 1)
    loop.network.faults.append(FrameFault(kind))
    whole = frame(0, 1, b"x" * 1000)
    assert server.transport is not None
    (transport if kind == "tear_request" else server.transport).write(whole)
    settle(loop, 1)
    received = server.received if kind == "tear_request" else client.received
    assert 0 < len(received) < len(whole)
    assert whole.startswith(received)
    assert isinstance(client.lost, ConnectionResetError)


def test_detached_node_sends_nothing_and_its_peer_receives_a_reset() -> None:
    loop = make_loop()
    server = Recorder()
    context = loop.context_of("node#1")

    async def listen() -> None:
        await loop.create_server(lambda: server, "0.0.0.0", 9000)

    loop.run_until_complete(loop.create_task(listen(), context=context))
    _, client = loop.run_until_complete(loop.create_connection(Recorder, "node", 9000))
    assert isinstance(client, Recorder)
    settle(loop, 1)
    loop.network.detach_node("node#1")
    assert server.transport is not None
    server.transport.write(b"from beyond")
    settle(loop, 1)
    assert (client.received, server.lost) == (b"", "connected")
    assert isinstance(client.lost, ConnectionResetError)
    with pytest.raises(ConnectionRefusedError):
        loop.run_until_complete(loop.create_connection(Recorder, "node", 9000))


def test_trace_hash_depends_on_every_line() -> None:
    first, second = Trace(), Trace()
    first.add(1, 0.5, "write", "a", 3)
    second.add(1, 0.5, "write", "a", 4)
    assert first.digest() != second.digest()
