"""Deterministic simulation of an application with a whole cluster in one process, on virtual time.

```python
from odradek.simulation import Topic, checkers, run

result = run(
    app,
    seed=7,
    topics={"in": Topic(records=[(b"k", b"1")]), "out": Topic()},
    checkers=[checkers.exactly_once("in", "out")],
)
print(result.explain())
```

Names are imported at first use: `odradek.simulation.environment` alone needs no client.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from odradek.simulation import checkers
    from odradek.simulation.application import Report, Sim
    from odradek.simulation.errors import Escaped, UnsuitableProcess
    from odradek.simulation.faults import Fault, Faults
    from odradek.simulation.final_state import Record, State, Topic
    from odradek.simulation.result import Event, Outcome, Result
    from odradek.simulation.runner import run

__all__ = [
    "Escaped",
    "Event",
    "Fault",
    "Faults",
    "Outcome",
    "Record",
    "Report",
    "Result",
    "Sim",
    "State",
    "Topic",
    "UnsuitableProcess",
    "checkers",
    "run",
]
MODULES: Final = {
    "Escaped": "errors",
    "Event": "result",
    "Fault": "faults",
    "Faults": "faults",
    "Record": "final_state",
    "Report": "application",
    "Result": "result",
    "Sim": "application",
    "State": "final_state",
    "Topic": "final_state",
    "UnsuitableProcess": "errors",
    "Outcome": "result",
    "run": "runner",
}
"""The module of each public name."""


def __getattr__(name: str) -> Any:
    if name == "checkers":
        return import_module("odradek.simulation.checkers")
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"odradek.simulation.{MODULES[name]}"), name)
