"""Random changes of ACLs: decisions after the log, after a snapshot, and after both equal those of a simple model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from odradek.cluster.authorization.standard import StandardAuthorizer
from odradek.cluster.authorizer import Principal
from odradek.cluster.controller.commands import CreateAcls, RemoveAcls
from odradek.cluster.controller.messages.settings import NewAcl
from odradek.cluster.metadata.cache import MetadataCache
from odradek.cluster.metadata.records import encode_record
from odradek.cluster.metadata.snapshot import image_records
from odradek.cluster.raft.batches import LogBatch
from odradek.cluster.raft.messages import EpochEnd
from odradek.protocol.acls import Acl, AclOperation, PatternType, Permission, ResourceType
from tests.support.effort import run_machine
from tests.support.raft_memory import ControllerRig

if TYPE_CHECKING:
    from collections.abc import Iterable

NAMES: Final = ("a", "ab", "abc", "b", "*")
PRINCIPALS: Final = ("User:x", "User:y", "User:*")
HOSTS: Final = ("*", "10.0.0.1", "10.0.0.0/8")
OPERATIONS: Final = (AclOperation.READ, AclOperation.DESCRIBE, AclOperation.ALL)
CLIENT_HOSTS: Final = ("10.0.0.1", "10.0.0.2", "11.0.0.1")
MATCHING_HOSTS: Final = {"10.0.0.1": HOSTS, "10.0.0.2": ("*", "10.0.0.0/8"), "11.0.0.1": ("*",)}
ACLS: Final = st.builds(
    lambda name, pattern, principal, host, operation, permission: Acl(
        ResourceType.TOPIC, name, pattern, principal, host, operation, permission
    ),
    st.sampled_from(NAMES),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    st.sampled_from(PRINCIPALS),
    st.sampled_from(HOSTS),
    st.sampled_from(OPERATIONS),
    st.sampled_from([Permission.ALLOW, Permission.DENY]),
)


def is_allowed(acls: Iterable[Acl], principal: Principal, host: str, operation: AclOperation, name: str) -> bool:
    """Return the decision by a pass over all ACLs: a DENY that matches, then an ALLOW, then a denial."""
    permissions = [
        acl.permission
        for acl in acls
        if (acl.name in {name, "*"} if acl.pattern is PatternType.LITERAL else name.startswith(acl.name))
        and acl.principal in {str(principal), "User:*"}
        and acl.host in MATCHING_HOSTS[host]
        and (
            acl.operation in {operation, AclOperation.ALL}
            or (
                operation is AclOperation.DESCRIBE
                and acl.operation is AclOperation.READ
                and acl.permission is Permission.ALLOW
            )
        )
    ]
    return Permission.DENY not in permissions and Permission.ALLOW in permissions


class AclMachine(RuleBasedStateMachine):
    """The controller writes ACLs; one node applies the log, another one loads snapshots at times."""

    def __init__(self) -> None:
        super().__init__()
        self.rig = ControllerRig().with_brokers(1)
        self.nodes = [self._node(), self._node()]
        self.acls: dict[Acl, None] = {}
        self._deliver()

    @staticmethod
    def _node() -> tuple[MetadataCache, StandardAuthorizer]:
        cache, authorizer = MetadataCache(), StandardAuthorizer()
        cache.subscribe(authorizer.on_metadata)
        return cache, authorizer

    def _deliver(self) -> None:
        for cache, _ in self.nodes:
            offset = 0
            for batch in self.rig.batches:
                rows = tuple((record.key, record.value) for record in batch)
                cache.on_committed([LogBatch(offset, offset + len(rows) - 1, 1, rows)])
                offset += len(rows)

    @rule(acls=st.lists(ACLS, min_size=1, max_size=3))
    def create(self, acls: list[Acl]) -> None:
        self.rig.do(CreateAcls(tuple(NewAcl(*acl) for acl in acls)))
        self.acls |= dict.fromkeys(acls)
        self._deliver()

    @rule(position=st.integers(0, 20), count=st.integers(1, 3))
    def remove(self, position: int, count: int) -> None:
        image = self.rig.core.state.image
        ids = list(image.acls)[position : position + count]
        for acl_id in ids:
            del self.acls[image.acls[acl_id]]
        self.rig.do(RemoveAcls(tuple(ids)))
        self._deliver()

    @rule(is_new=st.booleans())
    def load_snapshot(self, is_new: bool) -> None:
        """Load a snapshot on the second node: into its present metadata, or after a restart."""
        if is_new:
            self.nodes[1] = self._node()
        image = self.rig.core.state.image
        rows = tuple((None, encode_record(record)) for record in image_records(image))
        load = self.nodes[1][0].on_snapshot(EpochEnd(image.epoch, image.offset + 1))
        load.take([LogBatch(0, len(rows) - 1, image.epoch, rows)])
        load.done()

    @invariant()
    def decisions_equal_the_model(self) -> None:
        for principal in (Principal("User", "x"), Principal("User", "y")):
            for host in CLIENT_HOSTS:
                for operation in (AclOperation.READ, AclOperation.DESCRIBE):
                    for name in ("a", "abcd", "b"):
                        expected = is_allowed(self.acls, principal, host, operation, name)
                        for _, authorizer in self.nodes:
                            decided = authorizer.decide(principal, host, operation, ResourceType.TOPIC, name)
                            assert decided.allowed is expected, (decided, self.acls)
                            assert decided.acl is None or decided.acl in self.acls


def test_decisions_after_snapshots_and_replay_equal_the_model() -> None:
    run_machine(AclMachine, examples=15, steps=15)
