"""Convert values of parameters without pydantic where that is possible, because its import takes 0.1 s of CPU time.

Typer converts each value by pydantic, also absent values and defaults, which have their type already.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

# Typer has no public names for the conversion of values.
from typer._coercion import RuntimeParam, TypeDescriptor, build_runtime_param
from typer.core import _TyperParameter

if TYPE_CHECKING:
    from typer._click.core import Context


@dataclass(frozen=True)
class LateParam(RuntimeParam):
    """Conversion of one parameter, by Typer if the value does not have its type yet."""

    descriptor: TypeDescriptor

    def _coerce_value(self, value: Any, param: _TyperParameter, ctx: Context) -> Any:
        if isinstance(self.annotation, type) and isinstance(value, self.annotation):
            return value
        info = self.parameter_info
        if self.annotation is Path and not info.exists and not info.resolve_path and info.file_okay and info.dir_okay:
            return Path(value)
        if self.annotation == list[str]:
            return list(value)
        if isinstance(self.annotation, type) and issubclass(self.annotation, StrEnum):
            known = {str(each): each for each in self.annotation}
            if value in known:
                return known[value]
        return build_runtime_param(self.descriptor).coerce(value, param=param, ctx=ctx)


def convert_late() -> None:
    """Use this conversion for all parameters. Each parameter of Typer creates its conversion by this method."""
    _TyperParameter.get_runtime_param = _late_param  # type: ignore[method-assign, assignment]


def _late_param(parameter: _TyperParameter) -> RuntimeParam:
    if parameter._runtime_param is None:
        descriptor = parameter.type_descriptor
        parameter._runtime_param = LateParam(descriptor.parameter_info, descriptor.annotation, descriptor)
    return parameter._runtime_param
