"""Setup of a simulation: application, cluster, faults, topics and checkers. A reduction leaves parts of it out."""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from odradek.simulation.faults import Fault, Faults

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from odradek.simulation.checkers import Checker
    from odradek.simulation.final_state import Topic
    from odradek.simulation.result import Result
    from odradek.simulation.runner import Choice, Until


@dataclass(frozen=True, slots=True)
class Reduction:
    """Parts of a setup that a run keeps. By default, it keeps everything."""

    faults: tuple[int, ...] | None = None
    """Numbers of the faults of the seed, from 1 in the order of time."""
    duration: float = 1.0
    """Factor of the duration of each fault."""
    records: int | None = None
    """First records of each topic."""
    until: float | None = None
    """Virtual seconds after which the application is ended."""

    def options(self) -> list[str]:
        """Return the options of the command line for this reduction."""
        options = []
        if self.faults is not None:
            options += ["--faults", ",".join(map(str, self.faults)) or "none"]
        if self.duration != 1.0:
            options += ["--duration", f"{self.duration:g}"]
        if self.records is not None:
            options += ["--records", str(self.records)]
        if self.until is not None:
            options += ["--until", f"{self.until:g}"]
        return options


WHOLE: Final = Reduction()


@dataclass(frozen=True)
class Setup:
    """Arguments of `run` that are equal for all seeds."""

    app: Any
    brokers: int = 3
    instances: int = 1
    faults: "Choice" = None
    settings: "Mapping[str, object]" = field(default_factory=dict)
    topics: "Mapping[str, Topic]" = field(default_factory=dict)
    until: "Until" = None
    checkers: "Sequence[Checker]" = ()

    def check(self) -> None:
        """Raise ValueError if an argument is invalid."""
        from odradek.simulation.arguments import check_setup

        check_setup(self)

    def faults_of(self, seed: int) -> list[Fault]:
        """Return all faults of a seed, in the order of time."""
        faults = Faults() if self.faults is None else self.faults
        if isinstance(faults, Faults):
            return faults.generate(seed, brokers=self.brokers, instances=self.instances)
        return list(faults)

    def run(self, seed: int, reduction: Reduction = WHOLE, *, printing: bool = False) -> "Result":
        """Run one seed. Raise ValueError if the reduction names a fault that the seed does not have."""
        from odradek.simulation.runner import run

        return run(
            self.app,
            seed=seed,
            brokers=self.brokers,
            instances=self.instances,
            faults=self._kept(seed, reduction),
            settings=self.settings,
            topics={
                name: replace(topic, records=topic.records[: reduction.records]) for name, topic in self.topics.items()
            },
            until=self.until if reduction.until is None else reduction.until,
            checkers=self.checkers,
            printing=printing,
        )

    def _kept(self, seed: int, reduction: Reduction) -> list[Fault]:
        faults = self.faults_of(seed)
        numbers = range(1, len(faults) + 1) if reduction.faults is None else reduction.faults
        for number in numbers:
            if not 1 <= number <= len(faults):
                raise ValueError(f"Seed {seed} has no fault {number}. Use numbers from 1 to {len(faults)}.")
        return [
            replace(faults[number - 1], seconds=round(faults[number - 1].seconds * reduction.duration, 6))
            for number in numbers
        ]
