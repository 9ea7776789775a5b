"""One decision about a group, as it grows. It changes nothing until the engine carries it out."""

from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from odradek.coordinator.group.commands import Respond
from odradek.coordinator.group.memory_accounting import MemoryAccounting
from odradek.coordinator.group.state import Group, State
from odradek.protocol.errors import Refusal
from odradek.protocol.schema import Message
from odradek.runtime.shard import Decision, Effect, ShardRecord, SoftChange, Timer

G = TypeVar("G", bound=Group)


@dataclass(slots=True)
class Draft(Generic[G]):
    """Collects what a decision about `group` leads to beside its reply: records, effects, timers, changes of soft state."""

    state: State
    group: G
    now_ms: int
    records: list[ShardRecord] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    timers: list[Timer] = field(default_factory=list)
    soft: list[SoftChange] = field(default_factory=list)
    soft_survives: bool = False
    counted: MemoryAccounting = field(init=False)
    """The accounting as last counted, for decisions that take no memory."""
    memory: MemoryAccounting = field(init=False)
    """The accounting with what this decision takes."""

    def __post_init__(self) -> None:
        self.counted = self.memory = self.state.memory

    def respond(self, waiter: int | None, response: Message | Refusal) -> None:
        """Answer the request that waits under this number, if there is one."""
        if waiter is not None:
            self.effects.append(Respond(waiter, response))

    def reserve(self, cost: int, *, newcomer: bool) -> bool:
        """Take `cost` bytes of memory for a member. Return False if so much is not left."""
        if cost <= 0:
            return True
        members_bytes = (group.members_bytes for group in self.state.groups.values())
        self.counted = self.memory.counted(members_bytes, cost, self.now_ms, newcomer=newcomer)
        if not self.counted.has_capacity(cost, newcomer=newcomer):
            return False
        self.memory = self.counted.taken(cost)
        return True

    def take(self, cost: int) -> None:
        """Take `cost` bytes (or give them back) for an existing member, whatever is left."""
        if cost:
            self.memory = self.memory.taken(cost)

    def decision(self, reply: Any) -> Decision[Any]:
        """Return the decision with everything that was collected."""
        return Decision(
            reply,
            records=tuple(self.records),
            effects=tuple(self.effects),
            timers=tuple(self.timers),
            soft=(*self.soft, *self._accounts(self.memory)),
            soft_survives=self.soft_survives,
        )

    def refused(self, reply: Any) -> Decision[Any]:
        """Return a decision that changes nothing, except that members need not be counted again so soon."""
        return Decision(reply, soft=self._accounts(self.counted))

    def fail(self, refusal: Refusal) -> Decision[Any]:
        """Raise `refusal`, or return it as the reply if members were counted for this decision."""
        if self.counted is self.state.memory:
            raise refusal
        return self.refused(refusal)

    def _accounts(self, memory: MemoryAccounting) -> tuple[SoftChange, ...]:
        if memory is self.state.memory:
            return ()

        def change() -> None:
            self.state.memory = memory

        return (change,)
