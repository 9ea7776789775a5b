"""Dataclasses that are immutable for the type checker, and fast to construct.

`dataclass(frozen=True)` assigns each field through `object.__setattr__`: construction takes four to six times as long
as that of a mutable dataclass. So the packages that handle requests use `frozen_dataclass` (decision 0126). The type
checker treats it as `dataclass` and refuses every assignment to a field. At run time, fields can be assigned.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as frozen_dataclass
else:
    from dataclasses import dataclass

    def frozen_dataclass(*, frozen: bool, slots: bool):  # noqa: ANN201  the type checker sees `dataclass`
        """Return a decorator for classes with the equality and hash of `dataclass(frozen=True)`."""
        assert frozen, "a mutable class uses `dataclass`"
        return dataclass(slots=slots, unsafe_hash=True)


__all__ = ["frozen_dataclass"]
