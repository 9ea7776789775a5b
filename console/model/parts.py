"""Parts of a page: each is read with a deadline, and a failure of one part leaves the others intact."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from odradek.client.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Awaitable

T = TypeVar("T")

DEADLINE_S: Final = 6.0
"""Seconds for one part of a page. A broker that does not respond delays a page by at most this time."""


@dataclass(frozen=True, slots=True)
class Part(Generic[T]):
    """A part of a page: its value, or the reason why it could not be read.

    Attributes:
        value: The value, or None if it could not be read.
        error: The reason. Empty if the value was read.
    """

    value: T | None = None
    error: str = ""


async def read_part(reading: Awaitable[T], deadline_s: float | None = None) -> Part[T]:
    """Wait for a value. Return the reason instead if the cluster refuses it, or does not respond in time.

    `deadline_s` None: DEADLINE_S.
    """
    deadline_s = DEADLINE_S if deadline_s is None else deadline_s
    try:
        async with asyncio.timeout(deadline_s):
            return Part(await reading)
    except ClientError as error:
        return Part(error=str(error))
    except TimeoutError:
        return Part(error=f"no response within {deadline_s:g} s")
