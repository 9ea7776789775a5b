"""Requests of a session that expires: refused when they arrive, but not while they wait for the registration."""

from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.apis import metadata
from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.dispatch.dispatcher import Dispatcher
from odradek.broker.requests.session import Session
from odradek.broker.requests.session_login import SessionExpired
from odradek.broker.security.authorizer import AllowAll
from odradek.protocol.connection import parse_request
from odradek.protocol.messages.metadata import MetadataRequest
from tests.support.broker_context import LISTENER
from tests.support.raw_client import SIZE, encode_request


def test_request_that_waited_for_the_registration_is_served_after_its_session_has_expired() -> None:
    now_ms: list[int] = [0]
    expired: list[Session] = []
    clock = SimpleNamespace(wall_ms=lambda: 0, monotonic_us=lambda: 0, monotonic_ms=lambda: now_ms[0])
    services: Any = SimpleNamespace(
        clock=clock,
        quotas=None,
        authorizer=AllowAll(),
        audit=None,
        controller=None,
        authentication=SimpleNamespace(expired=expired.append),
    )
    dispatcher = Dispatcher(
        (metadata.API,),
        BrokerRequestContext,
        (services, services, services),
        forwarding=services,
        metrics={},
        large_requests=services,
        on_unexpected=lambda _context, bug: pytest.fail(repr(bug)),
    )
    session = Session(1, LISTENER, "127.0.0.1", 5)
    session.login.expires_ms = 1_000
    frame = parse_request(encode_request(MetadataRequest(topics=[]), 12, 1, "client")[SIZE.size :])
    call = dispatcher.open(frame, session)
    now_ms[0] = 1_000
    assert dispatcher.reopen(call).request == call.request
    assert not expired
    with pytest.raises(SessionExpired):
        dispatcher.open(frame, session)
    assert expired == [session]
