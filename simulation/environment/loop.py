"""asyncio event loop on virtual time. All its choices come from one seed.

- Handles of one node run in the order in which they were scheduled, as asyncio guarantees. So every bug found can
  happen in production. The seed selects the node that runs next, and the order of timers with equal deadlines, which
  asyncio does not define either.
- The node is a context variable, inherited by everything that its code schedules. So a crash finds all tasks of the
  ended process.
- Each handle advances time by a fixed amount. When no handle is ready, time advances to the next timer.
- There are no threads: `run_in_executor` raises an error, because a thread would bypass the seams.
"""

import asyncio
import gc
import heapq
import io
import traceback
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Sequence
from concurrent.futures import Executor
from contextvars import Context, ContextVar, copy_context
from random import Random
from typing import Any, Final, TypeVar, TypeVarTuple

from odradek.simulation.environment.network import Network
from odradek.simulation.environment.trace import Trace

T = TypeVar("T")
Args = TypeVarTuple("Args")

WORLD: Final = "world"
NODE: Final[ContextVar[str]] = ContextVar("simulated_node", default=WORLD)
HANDLE_SECONDS: Final = 4e-6
STEPS_MAX: Final = 3_000_000
VIRTUAL_SECONDS_MAX: Final = 4 * 3600.0
TASKS_BEFORE_PRUNING: Final = 512


class SimulationError(Exception):
    """Raised for errors of the run itself, not for violated invariants."""


class Deadlock(SimulationError):
    """Raised when no handle is ready and no timer is set before the run is over."""


class Livelock(SimulationError):
    """Raised when the run exceeds its limit of steps or of virtual time."""


class SeamBypassed(SimulationError):
    """Raised when code requests a thread, a process or another resource outside the simulation."""


class SimLoop(asyncio.BaseEventLoop):
    """Event loop of a run. `failures` collects unhandled exceptions, which asyncio would log."""

    future_class: type[asyncio.Future[Any]] = asyncio.Future
    task_class: type[asyncio.Task[Any]] = asyncio.Task

    def __init__(
        self,
        rng: Random,
        *,
        trace: Trace | None = None,
        network: Network | None = None,
        steps_max: int = STEPS_MAX,
        virtual_seconds_max: float = VIRTUAL_SECONDS_MAX,
    ) -> None:
        super().__init__()
        self.set_debug(False)
        self.rng = rng
        self.trace = trace or Trace()
        self.steps = 0
        self.failures: list[dict[str, Any]] = []
        self.step_hook: Callable[[], None] | None = None
        self.step_hook_at = STEPS_MAX * 2
        self._steps_max = steps_max
        self._virtual_seconds_max = virtual_seconds_max
        self._now = 0.0
        self._timers: list[tuple[float, float, int, asyncio.TimerHandle]] = []
        self._timer_count = 0
        self._queues: dict[str, deque[asyncio.Handle]] = {}
        self._runnable: list[str] = []
        self._ended: dict[str, None] = {}
        self._stalled: dict[str, None] = {}
        self._tasks: dict[str, dict[asyncio.Task[Any], None]] = {}
        self._creators: dict[int, str] = {}
        """Node that created each future and task, by the `id` of the object.

        The entry of a freed object stays until another one gets its id. A subclass of Future with an attribute for the
        node would slow each `await` down.
        """
        self.network = network or Network(rng)
        self.network.bind(self)
        self.set_task_factory(self._make_task)
        self.set_exception_handler(self._collect_failure)

    def close(self) -> None:
        super().close()
        self._timers.clear()
        self._queues.clear()
        self._tasks.clear()

    # ---- time and scheduling ----------------------------------------------------------------------------------------

    def time(self) -> float:
        return self._now

    def _call_soon(
        self, callback: Callable[..., object], args: Sequence[Any], context: Context | None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._enqueue(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Args], object], *args: *Args, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Args], object],
        *args: *Args,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._timer_count += 1
        heapq.heappush(self._timers, (when, self.rng.random(), self._timer_count, timer))
        return timer

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Args], object],
        *args: *Args,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Keep a cancelled timer in the heap; `_release_timers` skips it at its time."""

    def create_future(self) -> asyncio.Future[Any]:
        future = self.future_class(loop=self)
        self._creators[id(future)] = NODE.get()
        return future

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Args], T], *args: *Args) -> asyncio.Future[T]:
        raise SeamBypassed(f"run_in_executor({func!r}): the simulation has no threads")

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Do nothing: the simulation has no executor."""

    def _enqueue(self, handle: asyncio.Handle) -> None:
        node = handle._context.get(NODE, WORLD)  # type: ignore[attr-defined]
        queue = self._queues.get(node)
        if queue is None:
            if node in self._ended:
                return
            queue = self._queues[node] = deque()
        if not queue and node not in self._stalled:
            self._runnable.append(node)
        queue.append(handle)

    def _run_once(self) -> None:
        self._release_timers()
        runnable = self._runnable
        if not runnable:
            if self._stopping:  # type: ignore[attr-defined]
                return
            self._jump()
            return
        index = int(self.rng.random() * len(runnable)) if len(runnable) > 1 else 0
        node = runnable[index]
        queue = self._queues[node]
        handle = queue.popleft()
        if not queue:
            del runnable[index]
        if handle._cancelled:
            return
        self.steps += 1
        self._now += HANDLE_SECONDS
        self._run_handle(handle)
        if self.steps >= self.step_hook_at and self.step_hook is not None:
            self.step_hook()
        if self.steps > self._steps_max:
            raise Livelock(f"{self.steps} steps at virtual second {self._now:.3f}\n{self.describe_tasks()}")

    def _run_handle(self, handle: asyncio.Handle) -> None:
        handle._run()

    def _release_timers(self) -> None:
        timers = self._timers
        while timers and timers[0][0] <= self._now:
            handle = heapq.heappop(timers)[3]
            if not handle._cancelled:
                self._enqueue(handle)

    def _jump(self) -> None:
        timers = self._timers
        while timers and timers[0][3]._cancelled:
            heapq.heappop(timers)
        if not timers:
            raise Deadlock(f"nothing is ready and no timer is set\n{self.describe_tasks()}")
        self._now = max(self._now, timers[0][0])
        if self._now > self._virtual_seconds_max:
            raise Livelock(f"virtual second {self._now:.3f} reached\n{self.describe_tasks()}")

    # ---- nodes ------------------------------------------------------------------------------------------------------

    def context_of(self, node: str) -> Context:
        """Return a context in which code belongs to `node`."""
        context = copy_context()
        context.run(NODE.set, node)
        return context

    def spawn(self, node: str, coro: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        return self.create_task(coro, name=name, context=self.context_of(node))

    @property
    def nodes(self) -> list[str]:
        """Return the names that have tasks."""
        return list(self._tasks)

    def tasks_of(self, node: str) -> list[asyncio.Task[Any]]:
        """Return the unfinished tasks of the node, oldest first."""
        return [task for task in self._tasks.get(node, ()) if not task.done()]

    def stall(self, node: str, seconds: float) -> None:
        """Pause the node (SIGSTOP) for `seconds`: its handles wait."""
        if node in self._stalled or node in self._ended:
            return
        self._stalled[node] = None
        if node in self._runnable:
            self._runnable.remove(node)
        self.call_later(seconds, self.resume, node, context=self.context_of(WORLD))

    def resume(self, node: str) -> None:
        """Resume a paused node."""
        if node in self._stalled:
            del self._stalled[node]
            if self._queues.get(node):
                self._runnable.append(node)

    def remove_node(self, node: str) -> None:
        """Remove an ended node: its handles and timers never run, and nothing can be scheduled for it again."""
        self._ended[node] = None
        self._queues.pop(node, None)
        self._tasks.pop(node, None)
        if node in self._runnable:
            self._runnable.remove(node)

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, T] | Generator[Any, None, T], **options: Any
    ) -> asyncio.Task[T]:
        task: asyncio.Task[T] = self.task_class(coro, loop=loop, **options)
        context: Context | None = options.get("context")
        node = NODE.get() if context is None else context.get(NODE, WORLD)
        self._creators[id(task)] = node
        tasks = self._tasks.setdefault(node, {})
        if len(tasks) > TASKS_BEFORE_PRUNING:
            for done in [task for task in tasks if self._may_be_pruned(task)]:
                del tasks[done]
        tasks[task] = None
        return task

    def _may_be_pruned(self, task: asyncio.Task[Any]) -> bool:
        return task.done()

    # ---- failures ---------------------------------------------------------------------------------------------------

    def _collect_failure(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.failures.append({**context, "node": self._node_of_failure(context), "step": self.steps})

    def _node_of_failure(self, context: dict[str, Any]) -> str:
        """Return the node of the failed future, task or callback. Its garbage collection can be in another's step."""
        failed = context.get("task", context.get("future"))
        if type(failed) in {self.future_class, self.task_class}:
            return self._creators.get(id(failed), NODE.get())
        handle = context.get("handle")
        return NODE.get() if handle is None else str(handle._context.get(NODE, WORLD))

    def collect_unread(self) -> None:
        """Add to `failures` the exceptions of unreachable futures and tasks that nothing has read.

        asyncio reports such an exception when the future is freed. Within a reference cycle, that needs a collection.
        """
        gc.collect()

    def describe_failures(self) -> list[str]:
        described = []
        for failure in self.failures:
            error = failure.get("exception")
            trail = "".join(traceback.format_exception(error)) if error is not None else ""
            described.append(f"{failure['node']} at step {failure['step']}: {failure['message']}\n{trail}")
        return described

    def describe_tasks(self) -> str:
        """Return the stacks of all unfinished tasks, by node."""
        out = io.StringIO()
        for node in self._tasks:
            for task in self.tasks_of(node):
                out.write(f"[{node}] ")
                task.print_stack(file=out)
        return out.getvalue()

    # ---- network ----------------------------------------------------------------------------------------------------

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        **options: Any,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        if options.get("ssl"):
            raise SeamBypassed("TLS is tested live, not simulated")
        assert host is not None
        assert port is not None
        return await self.network.connect(protocol_factory, host, port)

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | Sequence[str] | None = None,
        port: int | None = None,
        **options: Any,
    ) -> asyncio.AbstractServer:
        if options.get("ssl"):
            raise SeamBypassed("TLS is tested live, not simulated")
        hosts = [host or ""] if isinstance(host, str) or host is None else list(host)
        return self.network.listen(protocol_factory, hosts, port or 0)

    async def create_datagram_endpoint(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        local_addr: tuple[str, int] | None = None,
        remote_addr: tuple[str, int] | None = None,
        **options: Any,
    ) -> tuple[asyncio.DatagramTransport, asyncio.BaseProtocol]:
        if options.get("sock") is not None:
            raise SeamBypassed("a real socket is outside the simulation")
        protocol = protocol_factory()
        assert isinstance(protocol, asyncio.DatagramProtocol)
        transport = self.network.open_datagrams(protocol, local_addr, remote_addr)
        transport.start()
        return transport, protocol

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> list[Any]:
        """Return the host name as its address."""
        return [(2, options.get("type", 1), 0, "", (host, int(port or 0)))]
