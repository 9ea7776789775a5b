"""Join the responses to the parts of a large request. Results of earlier parts are kept in their encoded form."""

from itertools import pairwise
from typing import Any

from odradek.broker.requests.large_work import LargeWork
from odradek.broker.requests.splitting import Splitting
from odradek.protocol.schema import Message, Packed


class JoinedResponse:
    """Response to the parts so far.

    Objects need about ten times the memory of the encoded response. Therefore only the last result of each outer array
    remains an object, since the next part may continue it.
    """

    def __init__(self, splitting: Splitting, cls: type[Message]) -> None:
        self.response: Any = None
        """The response; None if no part has one."""
        self._splitting = splitting
        self._cls = cls

    async def add(self, part: Any, shared: int, work: LargeWork | None) -> None:
        """Append the results of `part`. `Splitting.parts` defines `shared`. Without `work`, they remain objects."""
        if self.response is None:
            self.response = part
        else:
            self._splitting.join(self.response, part, shared)
        if work is not None:
            await self._pack(work)

    async def _pack(self, work: LargeWork) -> None:
        struct = self.response
        for name, nested in pairwise((*self._splitting.response, "")):
            results = getattr(struct, name)
            if not results:
                return
            last = results[-1]
            end = len(results) - 1 if nested and not isinstance(last, Packed) else len(results)
            while end and isinstance(results[end - 1], Packed):
                end -= 1
            begin = end
            while begin and not isinstance(results[begin - 1], Packed):
                begin -= 1
            if begin < end:
                results[begin:end] = [await work.pack(self._cls, results[begin:end])]
            if isinstance(last, Packed):
                return
            struct = last
