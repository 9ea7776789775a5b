"""The draft of one decision about a group. The group does not change until the engine carries out the decision."""

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
    """Draft of a decision about `group`: records, effects, timers and soft changes, without the reply."""

    state: State
    group: G
    now_ms: int
    records: list[ShardRecord] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    timers: list[Timer] = field(default_factory=list)
    soft: list[SoftChange] = field(default_factory=list)
    soft_survives: bool = False
    counted: MemoryAccounting = field(init=False)
    """Memory accounting after the last count, without the memory that this decision reserves."""
    memory: MemoryAccounting = field(init=False)
    """Memory accounting with the memory that this decision reserves."""

    def __post_init__(self) -> None:
        self.counted = self.memory = self.state.memory

    def respond(self, waiter: int | None, response: Message | Refusal) -> None:
        """Complete the request that waits as `waiter`. Do nothing if `waiter` is None."""
        if waiter is not None:
            self.effects.append(Respond(waiter, response))

    def reserve(self, cost: int, *, is_new_member: bool) -> bool:
        """Reserve `cost` bytes of memory for a member. Return False if not enough memory is free."""
        if cost <= 0:
            return True
        members_bytes = (group.members_bytes for group in self.state.groups.values())
        self.counted = self.memory.recounted(members_bytes, cost, self.now_ms, is_new_member=is_new_member)
        if not self.counted.has_capacity(cost, is_new_member=is_new_member):
            return False
        self.memory = self.counted.after_reserving(cost)
        return True

    def charge(self, cost: int) -> None:
        """Reserve `cost` bytes for an existing member without a limit. A negative cost releases memory."""
        """Take `cost` bytes (or give them back) for an existing member, whatever is left."""
        if cost:
            self.memory = self.memory.after_reserving(cost)

    def decision(self, reply: Any) -> Decision[Any]:
        """Return the decision with all collected parts."""
        return Decision(
            reply,
            records=tuple(self.records),
            effects=tuple(self.effects),
            timers=tuple(self.timers),
            soft=(*self.soft, *self._accounts(self.memory)),
            soft_survives=self.soft_survives,
        )

    def refused(self, reply: Any) -> Decision[Any]:
        """Return a decision that keeps only the memory count, so that the next request need not count again."""
        return Decision(reply, soft=self._accounts(self.counted))

    def fail(self, refusal: Refusal) -> Decision[Any]:
        """Raise `refusal`. If this decision counted the members, return the refusal as its reply, to keep the count."""
        if self.counted is self.state.memory:
            raise refusal
        return self.refused(refusal)

    def _accounts(self, memory: MemoryAccounting) -> tuple[SoftChange, ...]:
        if memory is self.state.memory:
            return ()

        def change() -> None:
            self.state.memory = memory

        return (change,)
