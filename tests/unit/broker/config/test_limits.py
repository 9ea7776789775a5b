"""The table of limits in docs/configuration.md, which is generated from the constants."""

from importlib import import_module

import pytest

from odradek.broker.config import doc
from odradek.broker.config.limit import Limit
from odradek.broker.config.limits import LIMITS, PROPERTY_LIMITS
from odradek.broker.config.properties import PROPERTIES

ROWS = [limit for limits in LIMITS.values() for limit in limits]


@pytest.mark.parametrize("limit", ROWS, ids=lambda limit: limit.constant)
def test_changed_constant_differs_from_the_committed_table(limit: Limit, monkeypatch: pytest.MonkeyPatch) -> None:
    module, _, name = limit.constant.rpartition(".")
    value = getattr(import_module(f"odradek.{module}"), name)
    assert value > 0
    page = doc.PATH.read_text()
    assert doc.limit_row(limit) in page
    monkeypatch.setattr(f"odradek.{limit.constant}", value + 1)
    assert doc.limit_row(limit) not in page


def test_table_names_each_limit_once_and_only_existing_properties() -> None:
    constants = [limit.constant for limit in ROWS]
    assert len(set(constants)) == len(constants)
    named = {name for limit in ROWS for name in limit.property.split(", ") if name}
    assert named | set(PROPERTY_LIMITS) <= set(PROPERTIES)


def test_constant_without_docstring_is_an_error() -> None:
    assert (
        doc.docstring_of('A: int = 1\n"""Maximum A,\nper B."""\nC = 2\n"""Maximum C."""\n', "A") == "Maximum A, per B."
    )
    assert doc.docstring_of('A = 1\nC = 2\n"""Maximum C."""\n', "C") == "Maximum C."
    with pytest.raises(KeyError, match="A"):
        doc.docstring_of('A = 1\nC = 2\n"""Maximum C."""\n', "A")
