"""Checks of the arguments of a simulation, before any run."""

import inspect
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from odradek.simulation.faults import Fault, Faults
from odradek.simulation.final_state import Topic

if TYPE_CHECKING:
    from odradek.simulation.setup import Setup

BROKERS_MAX: Final = 5
"""Maximum brokers of a simulated cluster."""
PAIR: Final = 2
"""Length of a record of a topic: key and value."""


def check_setup(setup: "Setup") -> None:
    """Raise ValueError if an argument of a simulation is invalid."""
    app, brokers, instances, until = setup.app, setup.brokers, setup.instances, setup.until
    _check_app(app)
    _require(
        _is_whole(brokers) and 1 <= brokers <= BROKERS_MAX,
        f"brokers={brokers!r}: use a whole number from 1 to {BROKERS_MAX}",
    )
    _require(_is_whole(instances) and instances >= 1, f"instances={instances!r}: use a whole number from 1 on")
    _require(
        until is None or callable(until) or _is_positive(until),
        f"until={until!r}: use virtual seconds above 0, or a function of the reports",
    )
    for checker in setup.checkers:
        _require(callable(checker), f"checkers: {checker!r} is no function of the final state")
    _require(isinstance(setup.settings, Mapping), f"settings={setup.settings!r}: use a dict from names to values")
    _require(isinstance(setup.topics, Mapping), f"topics={setup.topics!r}: use a dict from names to Topic(...)")
    for name, topic in setup.topics.items():
        _check_topic(name, topic)
    _check_faults(setup)


def _check_app(app: Any) -> None:
    remedy = f"app={app!r}: use async def app(sim), or a class with async def main(self, sim)"
    main: Any = getattr(app, "main", None)
    calls = [(app, 0), (main, 2)] if inspect.isclass(app) else [(app, 1)]
    _require(all(_takes(function, count) for function, count in calls), remedy)


def _takes(function: Any, count: int) -> bool:
    """Return True if the function can be called with this number of arguments, or if that is unknown."""
    if not callable(function):
        return False
    try:
        inspect.signature(function).bind(*range(count))
    except ValueError:  # a function of C without a signature
        return True
    except TypeError:
        return False
    return True


def check_seeds(seeds: "int | Iterable[int]") -> list[int]:
    """Return the seeds of a number of seeds, or of an iterable. Raise ValueError if there is none, or one below 0."""
    chosen = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    _require(
        bool(chosen) and all(_is_whole(seed) and seed >= 0 for seed in chosen),
        f"seeds={seeds!r}: use a number of seeds from 1 on, or a list of seeds from 0 on",
    )
    return chosen


def _check_topic(name: str, topic: Any) -> None:
    _require(isinstance(topic, Topic), f"topics: {name!r} is {topic!r}; use Topic(partitions, records, configs)")
    count = topic.partitions
    _require(_is_whole(count) and count >= 1, f"topic {name!r}: partitions={count!r}; use a whole number from 1 on")
    for record in topic.records:
        _require(_is_pair(record), f"topic {name!r}: record {record!r} is no pair of key and value; use bytes or None")


def _check_faults(setup: "Setup") -> None:
    faults = setup.faults
    if faults is None or isinstance(faults, Faults):
        return
    _require(
        _is_list_of_faults(faults),
        f"faults={faults!r}: use Faults(...), or a list of Fault(...)",
    )
    for fault in faults:
        fault.check(brokers=setup.brokers, instances=setup.instances)


def _require(valid: bool, problem: str) -> None:
    if not valid:
        raise ValueError(problem)


def _is_list_of_faults(faults: Any) -> bool:
    return isinstance(faults, Sequence) and all(isinstance(fault, Fault) for fault in faults)


def _is_pair(record: Any) -> bool:
    return (
        isinstance(record, tuple | list)
        and len(record) == PAIR
        and all(part is None or isinstance(part, bytes) for part in record)
    )


def _is_whole(number: Any) -> bool:
    return isinstance(number, int) and not isinstance(number, bool)


def _is_positive(number: Any) -> bool:
    return isinstance(number, int | float) and not isinstance(number, bool) and 0 < number < math.inf
