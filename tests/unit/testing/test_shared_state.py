from __future__ import annotations

from odradek.client import Acl, AclOperation, ConfigKind, PatternType, Permission, ResourceType
from odradek.testing.shared_state import Changes, SharedState, changes_between


def acl(name: str) -> Acl:
    return Acl(ResourceType.TOPIC, name, PatternType.LITERAL, "User:bob", "*", AclOperation.READ, Permission.ALLOW)


def test_equal_states_need_no_change() -> None:
    state = SharedState(frozenset({acl("a")}), {("bob", "SCRAM-SHA-256"): 4096}, {(("user", "bob"),): {"rate": 1.0}})
    assert changes_between(state, state) == Changes(frozenset(), frozenset(), {}, {}, {}, frozenset())


def test_changes_remove_what_is_new_and_restore_what_is_missing_or_different() -> None:
    brokers, group = (ConfigKind.BROKER, ""), (ConfigKind.GROUP, "g")
    now = SharedState(
        frozenset({acl("new"), acl("old")}),
        {("new", "SCRAM-SHA-256"): 4096, ("changed", "SCRAM-SHA-256"): 8192},
        {(("user", "new"),): {"rate": 1.0}, (("user", "old"),): {"rate": 2.0, "other": 3.0}},
        {brokers: {"secret": None, "limit": "2"}, group: {"timeout": "7"}},
        frozenset({"token"}),
    )
    wanted = SharedState(
        frozenset({acl("old"), acl("missing")}),
        {("changed", "SCRAM-SHA-256"): 4096, ("missing", "SCRAM-SHA-512"): 4096},
        {(("user", "old"),): {"rate": 1.0}},
        {brokers: {"limit": "1", "other": "3"}},
    )
    assert changes_between(now, wanted) == Changes(
        frozenset({acl("new")}),
        frozenset({acl("missing")}),
        {("new", "SCRAM-SHA-256"): None, ("changed", "SCRAM-SHA-256"): 4096, ("missing", "SCRAM-SHA-512"): 4096},
        {(("user", "new"),): {"rate": None}, (("user", "old"),): {"rate": 1.0, "other": None}},
        {brokers: {"secret": None, "limit": "1", "other": "3"}, group: {"timeout": None}},
        frozenset({"token"}),
    )
