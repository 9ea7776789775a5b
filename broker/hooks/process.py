"""All hooks of one broker process, for `odradek.broker.__main__`."""

from typing import Any

from odradek.broker.hooks.channel import HookChannel
from odradek.broker.hooks.dispatcher import HookedDispatcher


class ProcessHooks:
    """Hooks that the tests control over an inherited socket."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._channel = HookChannel()

    async def open(self) -> None:
        """Connect to the process that runs the tests."""
        await self._channel.open(self._descriptor)

    def dispatcher(self, *arguments: Any, **options: Any) -> HookedDispatcher:
        """Return a dispatcher with hooks, given the arguments of `Dispatcher`."""
        return HookedDispatcher(self._channel, *arguments, **options)
