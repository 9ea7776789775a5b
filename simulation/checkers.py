"""Checkers of the final state of a run. A checker yields one text for each violation.

A checker of your own is a function of `State`:

```python
def stock_is_never_negative(state):
    for report in state.reports:
        if report.kind == "stock" and report.value < 0:
            yield f"stock {report.value} at {report.at:.3f} s"
```
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from odradek.simulation.final_state import Record, State

Checker = Callable[[State], Iterable[str]]
EXAMPLES_MAX: Final = 5
"""Violations of one kind that a checker reports. The first ones suffice to find a cause."""


def _value(record: Record) -> Any:
    return record.value


def _some(texts: list[str]) -> Iterator[str]:
    yield from texts[:EXAMPLES_MAX]
    if len(texts) > EXAMPLES_MAX:
        yield f"{len(texts) - EXAMPLES_MAX} more of this kind"


def exactly_once(
    source: str, target: str, *, identity: Callable[[Record], Any] = _value, origin: Callable[[Record], Any] = _value
) -> Checker:
    """Return a checker: each record of `source` has exactly one committed record in `target`.

    `identity` returns what identifies a record of `source`, and `origin` the same of the record made from it.
    """

    def check(state: State) -> Iterator[str]:
        inputs = Counter(map(identity, state.committed.get(source, ())))
        outputs = Counter(map(origin, state.committed.get(target, ())))
        yield from _some([f"input {each!r} of {source} is not in {target}" for each in inputs if not outputs[each]])
        yield from _some(
            [
                f"input {each!r} is {count} times in {source}, and {outputs[each]} times in {target}"
                for each, count in inputs.items()
                if 0 < outputs[each] < count
            ]
        )
        yield from _some(
            [
                f"input {each!r} of {source} is {count} times in {target}"
                for each, count in outputs.items()
                if each in inputs and count > inputs[each]
            ]
        )
        yield from _some([f"{each!r} in {target} has no input in {source}" for each in outputs if each not in inputs])

    return check


def no_lost_acknowledged_record(topic: str, *, kind: str = "acknowledged") -> Checker:
    """Return a checker: each value reported as `kind` is in a committed record of `topic`."""

    def check(state: State) -> Iterator[str]:
        found = {record.value for record in state.committed.get(topic, ())}
        lost = [value for value in state.reported(kind) if value not in found]
        yield from _some([f"{value!r} was acknowledged and is not in {topic}" for value in lost])

    return check


def no_aborted_record_seen(topic: str, *, kind: str = "seen") -> Checker:
    """Return a checker: each value reported as `kind` is in a committed record of `topic`, not in an aborted one."""

    def check(state: State) -> Iterator[str]:
        found = {record.value for record in state.committed.get(topic, ())}
        seen = [value for value in state.reported(kind) if value not in found]
        yield from _some([f"{value!r} was seen in {topic}, but its transaction was aborted" for value in seen])

    return check


def finished(state: State) -> Iterator[str]:
    """Check that every instance of the application has returned."""
    if not state.finished:
        yield "the application did not return before the end of the run"
