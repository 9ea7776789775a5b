"""All hooks of one broker process, for `odradek.broker.__main__`."""

from asyncio import AbstractEventLoop
from typing import Any

from odradek.broker.hooks.channel import HookChannel
from odradek.broker.hooks.disk import FillableDisk
from odradek.broker.hooks.dispatcher import HookedDispatcher
from odradek.broker.hooks.event_loop import linked_event_loop
from odradek.broker.hooks.links import Links


class ProcessHooks:
    """Hooks that the tests control over an inherited socket: requests, links to other brokers, the disk."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._channel = HookChannel()
        self._links = Links()
        self._channel.handle("links", self._links.change)

    async def open(self) -> None:
        """Connect to the process that runs the tests."""
        await self._channel.open(self._descriptor)

    def new_event_loop(self) -> AbstractEventLoop:
        """Return the event loop of the broker."""
        return linked_event_loop(self._links)

    def disk(self, **options: Any) -> FillableDisk:
        """Return the disk of the broker, given the options of `OsDisk`."""
        disk = FillableDisk(**options)
        self._channel.handle("full_disk", disk.fill)
        return disk

    def dispatcher(self, *arguments: Any, **options: Any) -> HookedDispatcher:
        """Return a dispatcher with hooks, given the arguments of `Dispatcher`."""
        return HookedDispatcher(self._channel, *arguments, **options)
