"""Fields of each command: one definition for its table, its JSON and docs/command-line.md.

The name of a field is its key in the JSON and its heading in the table. `odradek/commands/vocabulary.py` has the
meaning of each name, and the place where Apache Kafka uses it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from odradek.local.output import print_json, show

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from odradek.commands.rows import Row


class Shape(Enum):
    """Form of the JSON of a command."""

    LIST = "a list of objects"
    OBJECT = "an object"
    LINES = "one object per line"


@dataclass(frozen=True, slots=True)
class Output:
    """The fields that a command prints.

    Attributes:
        command: Words that call the command.
        table: Fields of the table, in its order.
        more: Fields that only the JSON has.
        shape: Form of the JSON.
        within: Field that contains the objects. Empty: the objects are the whole output.
    """

    command: str
    table: tuple[str, ...] = ()
    more: tuple[str, ...] = ()
    shape: Shape = Shape.LIST
    within: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """All fields, in the order of the JSON."""
        return self.table + self.more

    def row(self, values: Mapping[str, Any]) -> Row:
        """Return an object with exactly these fields. A missing value is None.

        Raises:
            ValueError: A value has no field.
        """
        if unknown := values.keys() - set(self.names):
            raise ValueError(f"fields that odradek {self.command} does not define: {sorted(unknown)}")
        return {name: values.get(name) for name in self.names}

    def rows(self, rows: Iterable[Mapping[str, Any]]) -> list[Row]:
        """Return objects with exactly these fields."""
        return [self.row(values) for values in rows]

    def show(
        self, rows: Iterable[Mapping[str, Any]], *, as_json: bool, empty: str, columns: Sequence[str] | None = None
    ) -> None:
        """Print rows as JSON or as a table. `columns` are the fields of the table if they are not the defined ones."""
        show(self.rows(rows), columns or self.table, as_json=as_json, empty=empty)

    def print_json(self, values: Mapping[str, Any]) -> None:
        """Print one object as JSON."""
        print_json(self.row(values))
