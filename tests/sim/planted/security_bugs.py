"""Planted bugs in logins and ACLs, which a hostile tenant, or the comparison with the metadata log, must show."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import odradek.broker.apis.produce
import odradek.cluster.metadata.snapshot
from odradek.broker.requests.context import RequestContext
from odradek.broker.requests.session import Session
from odradek.broker.requests.session_login import LoginEvent, SessionLogin
from odradek.broker.security.token_credentials import TokenCredentials
from odradek.cluster.authorization.index import AclIndex
from odradek.cluster.authorization.standard import StandardAuthorizer
from odradek.cluster.metadata.records import AccessControlEntryRecord
from odradek.protocol.acls import Acl, AclOperation, PatternType, Permission, ResourceType
from tests.sim.planted.hostile_bugs import serve_all_roles
from tests.sim.planted.planted import Planted


def snapshot_without_acls(original: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    def image_records(image: Any) -> Iterator[Any]:
        return (record for record in original(image) if not isinstance(record, AccessControlEntryRecord))

    return image_records


def keep_removed_acls(original: Callable[..., bool]) -> Callable[..., bool]:
    """A snapshot adds ACLs to those of the former image, and removes none."""

    def use_prepared(self: StandardAuthorizer, image: Any) -> bool:
        former = self._index._counts
        used = original(self, image)
        for acl in former if used else ():
            if acl not in self._index._counts:
                self._index.add(acl)
        return used

    return use_prepared


def remember_decisions(original: Callable[..., Any]) -> Callable[..., Any]:
    """Remembered decisions stay when ACLs change."""

    def on_metadata(self: StandardAuthorizer, delta: Any, image: Any) -> None:
        recent, former = self._recent, self._former
        was_loaded = self._loaded
        original(self, delta, image)
        if was_loaded:
            self._recent, self._former = recent, former

    return on_metadata


def ignore_prefixed_denials(original: Callable[..., Any]) -> Callable[..., Any]:
    def find(self: AclIndex, *subject: Any) -> tuple[Acl | None, bool]:
        acl, exists = original(self, *subject)
        if acl is not None and acl.permission is Permission.DENY and acl.pattern is PatternType.PREFIXED:
            return acl._replace(permission=Permission.ALLOW), exists
        return acl, exists

    return find


def allow_change_of_user(_original: Callable[..., Any]) -> Callable[..., Any]:
    def next_reply(self: SessionLogin, message: bytes) -> Any:
        self._step(LoginEvent.MESSAGE)
        assert self._server is not None
        return self._server.next(message)

    return next_reply


def keep_expired_sessions(original: Callable[..., None]) -> Callable[..., None]:
    def succeed(self: SessionLogin, identity: Any, _expires_ms: int | None) -> None:
        original(self, identity, None)

    return succeed


def check_first_batch_only(original: Callable[..., bool]) -> Callable[..., bool]:
    """A connection that may write with a transactional id once may do so always."""
    sessions: dict[int, tuple[Any, dict[str | None, bool]]] = {}  # each session stays referenced

    def may_transact(context: Any, transactional_id: str | None) -> bool:
        known = sessions.setdefault(id(context.session), (context.session, {}))[1]
        if transactional_id not in known:
            known[transactional_id] = original(context, transactional_id)
        return known[transactional_id]

    return may_transact


def list_all_transactions(original: Callable[..., list[str]]) -> Callable[..., list[str]]:
    """Resources that a request does not name are not filtered, if they are transactional ids."""

    def permitted(
        self: RequestContext, operation: AclOperation, resource: ResourceType, names: Sequence[str]
    ) -> list[str]:
        if resource is ResourceType.TRANSACTIONAL_ID:
            return list(names)
        return original(self, operation, resource, names)

    return permitted


def accept_expired_tokens(original: Callable[..., Any]) -> Callable[..., Any]:
    def account(self: TokenCredentials, *token: Any) -> Any:
        wall_ms, self._wall_ms = self._wall_ms, lambda: 0
        try:
            return original(self, *token)
        finally:
            self._wall_ms = wall_ms

    return account


BUGS: Final = (
    Planted(
        "ACLs missing in a snapshot of the metadata",
        odradek.cluster.metadata.snapshot,
        "image_records",
        snapshot_without_acls,
        ("I18",),
        brokers=3,
        security=True,
    ),
    Planted(
        "removed ACL stays when a snapshot replaces the metadata",
        StandardAuthorizer,
        "_use_prepared",
        keep_removed_acls,
        ("I18",),
        brokers=3,
        security=True,
    ),
    Planted(
        "decisions remembered when ACLs change",
        StandardAuthorizer,
        "on_metadata",
        remember_decisions,
        ("I18",),
        brokers=3,
        security=True,
    ),
    Planted(
        "DENY of a prefix ignored",
        AclIndex,
        "find",
        ignore_prefixed_denials,
        ("I19",),
        brokers=3,
        security=True,
    ),
    Planted(
        "principal changed by a repeated login",
        SessionLogin,
        "next",
        allow_change_of_user,
        ("I19 .*repeated login",),
        security=True,
    ),
    Planted(
        "request served before the login",
        Session,
        "roles",
        serve_all_roles,
        ("I19 .*before the login",),
        security=True,
    ),
    Planted(
        "request served after the end of its session",
        SessionLogin,
        "succeed",
        keep_expired_sessions,
        ("I19 .*after the end of its session",),
        security=True,
    ),
    Planted(
        "WRITE on the transactional id checked for the first batch",
        odradek.broker.apis.produce,
        "_may_transact",
        check_first_batch_only,
        ("I18",),
        security=True,
    ),
    Planted(
        "transactions of all tenants listed",
        RequestContext,
        "permitted",
        list_all_transactions,
        ("I19 .*ListTransactions",),
        security=True,
    ),
    Planted(
        "expired delegation token logs in",
        TokenCredentials,
        "account",
        accept_expired_tokens,
        ("I20 .*accepted a token",),
        brokers=3,
        security=True,
    ),
)
