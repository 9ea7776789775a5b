"""Group members with rare behavior that the protocols allow.

They change subscriptions, keep partitions that they must revoke, sleep within a rebalance, and remove other members.
After the faults they behave normally.
"""

import asyncio
from typing import TYPE_CHECKING, Any, Final

from odradek.protocol.messages.leave_group import MemberIdentity
from tests.sim.workloads.membership import ASSIGNOR, ClassicMember, ConsumerMember, Membership
from tests.sim.world import TOPIC

if TYPE_CHECKING:
    from tests.sim.history import Partition
    from tests.sim.workloads.client import Client

CHANGE_PROBABILITY: Final = 0.12
SLEEP_PROBABILITY: Final = 0.15
HOLD_PROBABILITY: Final = 0.7
CHANGE_PROBABILITY_HOLDING: Final = 0.3
COMPANION_PROBABILITY: Final = 0.5
PROTOCOLS: Final = ((ASSIGNOR, "roundrobin"), ("roundrobin", ASSIGNOR))
TOPICS: Final = ((TOPIC,), (TOPIC, "elsewhere"), ("elsewhere",))
"""Subscriptions. Topic `elsewhere` does not exist: a member that subscribes to it alone receives no partitions."""


class RestlessClassicMember(ClassicMember):
    """Rejoins with or without other metadata, sleeps before SyncGroup, and removes other members when it leaves."""

    def __init__(self, client: "Client", group: str, member_id: str, instance_id: str | None) -> None:
        super().__init__(client, group, member_id, instance_id)
        self.rebalance_timeout_ms = self.session_timeout_ms // 2  # a join phase then ends before the session
        self.protocols = client.rng.choice(PROTOCOLS)

    async def heartbeat(self) -> None:
        rng, world = self.client.rng, self.client.world
        if not world.monitor.groups.calm and rng.random() < CHANGE_PROBABILITY:
            if rng.random() < 0.5:
                world.count("member with other metadata joins again")
                self.user_data = rng.randbytes(2)
            else:
                world.count("member joins again unchanged")
            self.joined = False
            return
        await super().heartbeat()

    async def _sync(self, joined: Any) -> bool:
        rng, world = self.client.rng, self.client.world
        if not world.monitor.groups.calm and rng.random() < SLEEP_PROBABILITY:
            world.count("member sleeps before it requests its assignment")
            await asyncio.sleep(self.rebalance_timeout_ms / 1000 * (0.5 + rng.random()))
        return await super()._sync(joined)

    def companions(self) -> list[MemberIdentity]:
        """Return an unknown member id and, for a static member, another instance id, as an administrator may."""
        if self.client.world.monitor.groups.calm or self.client.rng.random() > COMPANION_PROBABILITY:
            return []
        companions = [MemberIdentity(member_id="unknown-member")]
        if self.instance_id is not None:
            stem, _, slot = self.instance_id.rpartition("-")
            companions.append(MemberIdentity(group_instance_id=f"{stem}-{int(slot) + 1}"))
        self.client.world.count("several members leave in one request")
        return companions


class RestlessConsumerMember(ConsumerMember):
    """Changes its subscription, and keeps revoked partitions for about the rebalance time-out."""

    def __init__(self, client: "Client", group: str, member_id: str, instance_id: str | None) -> None:
        super().__init__(client, group, member_id, instance_id)
        self.rebalance_timeout_ms = self.session_timeout_ms // 2
        self._held: tuple[Partition, ...] = ()
        self._until = 0.0

    async def join(self) -> bool:
        self._held = ()
        return await super().join()

    async def heartbeat(self) -> None:
        rng, world = self.client.rng, self.client.world
        if world.monitor.groups.calm:
            self.topics = (TOPIC,)
        elif rng.random() < (CHANGE_PROBABILITY_HOLDING if self._held else CHANGE_PROBABILITY):
            world.count("member subscribes to something else")
            self.topics = rng.choice(TOPICS)
        await super().heartbeat()

    def owned(self) -> "tuple[Partition, ...]":
        world = self.client.world
        if self._held and (world.now() > self._until or world.monitor.groups.calm):
            self._held = ()
        return tuple(sorted({*self.assigned, *self._held}))

    def take(self, granted: "tuple[Partition, ...]") -> None:
        rng, world = self.client.rng, self.client.world
        lost = tuple(place for place in self.assigned if place not in granted)
        if lost and not world.monitor.groups.calm and rng.random() < HOLD_PROBABILITY:
            world.count("member keeps a partition that it must revoke")
            self._held = lost
            self._until = world.now() + self.rebalance_timeout_ms / 1000 * (0.2 + 1.6 * rng.random())
        super().take(granted)


RESTLESS: Final[dict[type[Membership], type[ClassicMember | ConsumerMember]]] = {
    ClassicMember: RestlessClassicMember,
    ConsumerMember: RestlessConsumerMember,
}
