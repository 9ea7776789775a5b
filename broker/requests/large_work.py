"""Turns of the event loop, and charges for memory, that the handler of a large request needs."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from odradek.protocol.codec import SlicedDecoding
from odradek.protocol.schema import Message, Packed, Struct


class RequestDropped(Exception):
    """The connection of a large request has ended, or is closed because the memory is exhausted. No response exists."""


class LargeWork(Protocol):
    """Work on one large request. `odradek.broker.dispatch.large_requests` implements it."""

    async def turn(self) -> None:
        """Let other work run, and wait until the request may go on. Raise RequestDropped if it may not."""

    async def decode(self, decoding: SlicedDecoding[Any]) -> None:
        """Decode the request in slices, and charge for it. Raise ChargeExceeded, Malformed or RequestDropped."""

    def charge(self, count: int) -> None:
        """Reserve `count` bytes of the byte budget until the response is sent."""

    def reserved(self, count: int) -> AbstractContextManager[None]:
        """Reserve `count` bytes of the byte budget within the block, for objects that are dropped at its end."""

    async def pack(self, message: type[Message], elements: Sequence[Struct]) -> Packed:
        """Encode elements of an array of the response `message` in slices, and charge for the result."""
