"""Convert values of parameters without pydantic where that is possible, because its import takes 0.1 s of CPU time.

Typer converts each value by pydantic, also absent values and defaults, which have their type already.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

# Typer has no public names for the conversion of values.
from typer._coercion import RuntimeParam, TypeDescriptor, build_runtime_param
from typer.core import _TyperParameter

if TYPE_CHECKING:
    from typer._click.core import Context

INTEGER = re.compile(r"[+-]?[0-9]{1,100}")
"""Integers in the usual form."""
DECIMAL = re.compile(r"[+-]?[0-9]{1,19}(\.[0-9]{1,19})?")
"""Numbers without an exponent."""


@dataclass(frozen=True)
class LateParam(RuntimeParam):
    """Conversion of one parameter, by Typer if the value does not have its type yet."""

    descriptor: TypeDescriptor

    def _coerce_value(self, value: Any, param: _TyperParameter, ctx: Context) -> Any:
        if isinstance(self.annotation, type) and isinstance(value, self.annotation):
            return value
        info = self.parameter_info
        try:
            number = self._number(value, self.annotation)
            numbers = [self._number(each, int) for each in value] if self.annotation == list[int] else []
        except typer.BadParameter as error:
            error.ctx, error.param = ctx, param
            raise
        if number is not None:
            return number
        if self.annotation is Path and not info.exists and not info.resolve_path and info.file_okay and info.dir_okay:
            return Path(value)
        if self.annotation == list[str]:
            return list(value)
        if self.annotation == list[int] and None not in numbers:
            return numbers
        if isinstance(self.annotation, type) and issubclass(self.annotation, StrEnum):
            known = {str(each): each for each in self.annotation}
            if value in known:
                return known[value]
        return build_runtime_param(self.descriptor).coerce(value, param=param, ctx=ctx)

    def _number(self, text: Any, wanted: Any) -> int | float | None:
        """Convert a number of this type. Return None if Typer must convert it, or refuse it with its message.

        Raise typer.BadParameter if the number is out of the range of the parameter.
        """
        info = self.parameter_info
        number: int | float
        if not isinstance(text, str):
            return None
        if wanted is int and INTEGER.fullmatch(text):
            number = int(text)
        elif wanted is float and DECIMAL.fullmatch(text):
            number = float(text)
        else:
            return None
        if (info.min is not None and number < info.min) or (info.max is not None and number > info.max):
            raise typer.BadParameter(f"{text} is not {range_of(info.min, info.max)}")
        return number


def range_of(low: float | None, high: float | None) -> str:
    """Return the permitted range of a number as text."""
    if low is None:
        return f"a number up to {high}"
    return f"a number from {low} on" if high is None else f"a number from {low} to {high}"


def convert_late() -> None:
    """Use this conversion for all parameters. Each parameter of Typer creates its conversion by this method."""
    _TyperParameter.get_runtime_param = _late_param  # type: ignore[method-assign, assignment]


def _late_param(parameter: _TyperParameter) -> RuntimeParam:
    if parameter._runtime_param is None:
        descriptor = parameter.type_descriptor
        parameter._runtime_param = LateParam(descriptor.parameter_info, descriptor.annotation, descriptor)
    return parameter._runtime_param
