"""Arguments of a simulation that are invalid: the decorator refuses them before any run, with the remedy."""

from __future__ import annotations

from typing import Any

import pytest

import odradek
from odradek.simulation import Fault, Faults, Sim, Topic, run
from odradek.simulation.faults import CRASH, KILL

NO_PAIRS: Any = ["a"]
TEXTS: Any = [(None, "a")]
NO_RANGE = "use numbers from 0 on, the smaller one first"


async def app(sim: Sim) -> None:
    """Do nothing."""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seeds": 0}, "seeds=0: use a number of seeds from 1 on"),
        ({"seeds": []}, r"seeds=\[\]: use a number of seeds from 1 on"),
        ({"seeds": [-1]}, r"seeds=\[-1\]: use a number of seeds from 1 on"),
        ({"brokers": 0}, "brokers=0: use a whole number from 1 to 5"),
        ({"brokers": 6}, "brokers=6: use a whole number from 1 to 5"),
        ({"brokers": "3"}, "brokers='3': use a whole number"),
        ({"instances": 0}, "instances=0: use a whole number from 1 on"),
        ({"until": 0}, "until=0: use virtual seconds above 0"),
        ({"until": "60"}, "until='60': use virtual seconds above 0, or a function"),
        ({"checkers": ["exactly once"]}, "checkers: 'exactly once' is no function"),
        ({"settings": ["num.partitions=3"]}, "use a dict from names to values"),
        ({"topics": ["orders"]}, "use a dict from names to Topic"),
        ({"topics": {"orders": 3}}, r"topics: 'orders' is 3; use Topic\(partitions, records, configs\)"),
        ({"topics": {"orders": Topic(partitions=0)}}, "topic 'orders': partitions=0; use a whole number from 1 on"),
        ({"topics": {"orders": Topic(records=NO_PAIRS)}}, "topic 'orders': record 'a' is no pair of key and value"),
        ({"topics": {"orders": Topic(records=TEXTS)}}, "is no pair of key and value; use bytes or None"),
        ({"faults": CRASH}, r"use Faults\(...\), or a list of Fault\(...\)"),
        ({"faults": [CRASH]}, r"use Faults\(...\), or a list of Fault\(...\)"),
        ({"faults": [Fault(CRASH, at=-1.0)]}, "at=-1.0; use a number of seconds from 0 on"),
        ({"faults": [Fault(KILL, at=1.0, seconds=float("inf"))]}, "seconds=inf; use a number of seconds from 0 on"),
        ({"faults": [Fault(KILL, at=1.0, target=4)]}, "number 4 does not exist; use 1 to 3"),
    ],
    ids=str,
)
def test_invalid_argument_of_the_decorator_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        odradek.simulated(**arguments)(app)


class _NoMain:
    pass


class _Parameters:
    def __init__(self, group: str) -> None:
        """Do nothing."""

    async def main(self, sim: Sim) -> None:
        """Do nothing."""


async def _no_argument() -> None:
    """Do nothing."""


@pytest.mark.parametrize(
    "wrong",
    [_NoMain, _Parameters, _no_argument, "app"],
    ids=["class without main", "class with a parameter", "function without parameters", "string"],
)
def test_application_that_cannot_be_called_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"use async def app\(sim\), or a class with async def main\(self, sim\)"):
        odradek.simulated()(wrong)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kinds": ["kill"]}, "kinds: 'kill' is no list of kinds of faults; use some of kill broker"),
        ({"kinds": KILL}, "kinds: 'kill broker' is no list of kinds"),
        ({"at_least": 5, "at_most": 2}, NO_RANGE),
        ({"at_least": -1}, NO_RANGE),
        ({"seconds": -1.0}, "seconds=-1.0: use a number of seconds from 0 on"),
    ],
    ids=str,
)
def test_invalid_argument_of_faults_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Faults(**arguments)


def test_run_refuses_the_same_arguments() -> None:
    with pytest.raises(ValueError, match="brokers=0: use a whole number from 1 to 5"):
        run(app, brokers=0)
