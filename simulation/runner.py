"""One run of an application in a simulated cluster."""

import asyncio
import gc
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any, Final

from odradek.client.errors import ClientError
from odradek.simulation.application import Instance, Report, Shared, failed_assertion
from odradek.simulation.checkers import Checker
from odradek.simulation.cluster.cluster import SimulatedCluster
from odradek.simulation.environment.network import Latency, Network
from odradek.simulation.environment.trace import Trace
from odradek.simulation.faults import Fault, Faults
from odradek.simulation.final_state import State, Topic, create_topics, read_state
from odradek.simulation.injector import Injector
from odradek.simulation.loop import ApplicationLoop
from odradek.simulation.result import Event, Result
from odradek.simulation.seams import real_perf_counter, require_suitable_process, seams
from odradek.simulation.setup import Setup

UNTIL_SECONDS_MAX: Final = 3600.0
"""Virtual seconds after which a run ends, if the condition of `until` does not hold before."""
CHECK_SECONDS: Final = 0.25
"""Virtual seconds between two checks of the condition of `until`."""
HEAL_SECONDS_MAX: Final = 120.0
"""Virtual seconds in which all brokers have to serve after the faults."""
ABANDON_SECONDS: Final = 0.5
"""Virtual seconds in which the tasks of brokers end after the run."""
STEPS_MAX: Final = 50_000_000
VIRTUAL_SECONDS_MAX: Final = 48 * 3600.0

Until = float | Callable[[Sequence[Report]], bool] | None
Choice = Faults | Sequence[Fault] | None


def run(
    app: Any,
    *,
    seed: int = 7,
    brokers: int = 3,
    instances: int = 1,
    faults: Choice = None,
    settings: Mapping[str, object] | None = None,
    topics: Mapping[str, Topic] | None = None,
    until: Until = None,
    checkers: Sequence[Checker] = (),
    printing: bool = False,
) -> Result:
    """Run an application with a cluster in this process, in virtual time, under faults, and check the final state.

    Args:
        app: A coroutine function that receives a `Sim`, or a class whose objects have such a method `main`. The class
            is called at each start of the process. An instance that returns is finished.
        seed: Source of all choices. Equal seeds give equal runs.
        brokers: Number of brokers, 1 to 5.
        instances: Number of processes of the application.
        faults: How faults are generated (`Faults`), or the list of faults. None stands for `Faults()`.
        settings: Broker properties by Kafka's names.
        topics: Topics that exist before the start, with their records.
        until: Virtual seconds after which the application is ended, or a condition on its reports. With None, the run
            ends when all instances have returned.
        checkers: Functions of the final state that yield violations.
        printing: Print each event of the trace.

    Raises:
        Escaped: The application uses something outside of the simulation: threads, processes, real sockets, TLS or
            confluent-kafka.
        ValueError: An argument is invalid, such as a fault of a broker that does not exist.
        UnsuitableProcess: This process cannot repeat a run.
    """
    setup = Setup(app, brokers, instances, faults, settings or {}, topics or {}, until, checkers)
    setup.check()
    require_suitable_process()
    started = real_perf_counter()
    faults = setup.faults_of(seed)
    simulation = _Run(app, seed, brokers, instances, faults, setup.settings, setup.topics, until, printing)
    findings, state = simulation.execute()
    if simulation.loop.escaped is not None:
        raise simulation.loop.escaped
    if state is not None:
        for checker in checkers:
            findings += _violations(checker, state)
    return Result(
        seed=seed,
        findings=findings,
        faults=faults,
        events=simulation.events,
        digest=simulation.digest,
        virtual_seconds=simulation.virtual_seconds,
        wall_seconds=real_perf_counter() - started,
        state=state,
    )


def _violations(checker: Checker, state: State) -> list[str]:
    """Return the violations that a checker finds. A failed assertion in it is one, too.

    Raise TypeError if its result is neither None nor an iterable of texts.
    """
    try:
        found: Any = checker(state)
        texts = None if isinstance(found, str | bool) else list(found or ())
    except AssertionError as error:
        return [failed_assertion(error) or f"AssertionError: {error}"]
    if texts is None or not all(isinstance(text, str) for text in texts):
        raise TypeError(f"the checker {checker!r} returned {found!r}; yield a text for each violation")
    return texts


class _Run:
    def __init__(
        self,
        app: Any,
        seed: int,
        brokers: int,
        instances: int,
        faults: Sequence[Fault],
        settings: Mapping[str, object],
        topics: Mapping[str, Topic],
        until: Until,
        printing: bool,
    ) -> None:
        rng = Random(seed)
        self.loop = ApplicationLoop(
            rng,
            trace=Trace(printing=printing),
            network=Network(rng, latency=Latency()),
            steps_max=STEPS_MAX,
            virtual_seconds_max=VIRTUAL_SECONDS_MAX,
        )
        self.events: list[Event] = []
        self.digest = ""
        self.virtual_seconds = 0.0
        self._seed = seed
        self._brokers = brokers
        self._faults = faults
        self._topics = topics
        self._until = until
        self._cluster = SimulatedCluster(self.loop, rng, brokers, settings, self._note)
        self._shared = Shared(self.loop, seed, self._cluster.bootstrap, self._note)
        self._instances = [Instance(self._shared, app, number) for number in range(1, instances + 1)]
        self.loop.network.unframed_hosts = frozenset(instance.host for instance in self._instances)
        self._injector = Injector(self.loop, self._cluster, self._instances, self._note)

    def execute(self) -> tuple[list[str], State | None]:
        """Return the findings of the run itself, and the final state."""
        state: State | None = None
        findings: list[str] = []
        with seams(self.loop, self._seed, self._note):
            asyncio.set_event_loop(self.loop)
            try:
                state = self.loop.run_until_complete(self._main())
            except ClientError as error:
                findings.append(f"the final state cannot be read: {error}")
            except Exception as error:  # noqa: BLE001  every failure of a run is a finding with its seed
                findings.append(f"the run ended with {type(error).__name__}: {error}\n{traceback.format_exc()}")
            finally:
                self.digest, self.virtual_seconds = self.loop.trace.digest(), self.loop.time()
                violations = [*self._cluster.violations, *self._cluster.unexpected_failures()]
                self._abandon()
                asyncio.set_event_loop(None)
        findings += self._shared.findings
        findings += [f"Odradek: {text}" for text in violations]
        return findings, state

    def _note(self, source: str, text: str) -> None:
        at = self.loop.time() - self._shared.began
        self.events.append(Event(at, source, text))
        self.loop.trace.add(self.loop.steps, self.loop.time(), "event", source, text)

    async def _main(self) -> State:
        if not await self._cluster.start():
            raise RuntimeError("the cluster does not start: see the findings")
        await create_topics(self._shared.bootstrap, self._brokers, self._topics)
        began = self._shared.began = self.loop.time()
        self.events[:] = [replace(event, at=event.at - began) for event in self.events]
        for instance in self._instances:
            instance.start()
        self._injector.schedule(self._faults)
        await self._wait()
        self._injector.stop()
        done = all(instance.finished for instance in self._instances)
        for instance in self._instances:
            instance.stop()
        self._note("run", "faults and application end")
        if self.loop.escaped is None and not await self._cluster.wait_up(HEAL_SECONDS_MAX):
            self._shared.findings.append(f"Odradek: a broker does not serve after {HEAL_SECONDS_MAX:.0f} s")
        return await read_state(
            self._shared.bootstrap,
            self._brokers,
            reports=self._shared.reports,
            durable=[instance.durable for instance in self._instances],
            finished=done,
        )

    async def _wait(self) -> None:
        until = self._until
        deadline = self.loop.time() + (until if isinstance(until, int | float) else UNTIL_SECONDS_MAX)
        while self.loop.time() < deadline:
            if self.loop.escaped is not None or all(instance.over for instance in self._instances):
                return
            if callable(until) and until(self._shared.reports):
                return
            await asyncio.sleep(min(CHECK_SECONDS, deadline - self.loop.time()))
        if not isinstance(until, int | float):
            self._shared.findings.append(
                f"the application is not done after {UNTIL_SECONDS_MAX:.0f} virtual seconds; "
                "if it does not return, pass the virtual seconds of a run: until=60.0"
            )

    def _abandon(self) -> None:
        """End the tasks of the brokers, and drop those of ended processes. Their clean-up has no effect any more."""
        hook, sys.unraisablehook = sys.unraisablehook, _ignore
        try:
            for name in list(self.loop.nodes):
                for task in self.loop.tasks_of(name):
                    task.cancel()
            self.loop.call_later(ABANDON_SECONDS, self.loop.stop)
            self.loop.run_forever()
        except Exception as error:  # noqa: BLE001  the state has been read
            self._shared.findings.append(f"Odradek: the brokers do not end: {error}")
        finally:
            self.loop.over = True
            self.loop.close()
            self._shared.frozen.clear()
            gc.collect()
            sys.unraisablehook = hook


def _ignore(unraisable: object) -> None:
    """Ignore an exception in the clean-up of a task that never ended."""
