"""A row of the table of limits in docs/configuration.md."""

from dataclasses import dataclass
from typing import Final

RETRIED: Final = "which clients retry"


@dataclass(frozen=True, slots=True)
class Limit:
    """A constant that bounds what clients can cause."""

    constant: str
    """Path of the constant below `odradek`: module and name."""
    unit: str
    """Unit of the value, and its scope. The value of a unit that begins with "bytes" is printed in KiB or MiB."""
    beyond: str
    """Effect beyond the limit, and the event after which capacity returns."""
    property: str = ""
    """The property that changes the limit or applies in addition. Empty: only the code changes it."""
