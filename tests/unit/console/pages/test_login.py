"""The login: each session has the principal of its own user, and ends."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from odradek.client.errors import AuthenticationFailed
from odradek.client.security.credentials import PLAIN, UserPassword
from odradek.console.settings import Settings
from odradek.console.web import sessions
from odradek.console.web.sessions import Sessions
from tests.support.command_line import TIMEOUT_S
from tests.support.console_client import browser
from tests.support.ports import free_port
from tests.support.secured_console import ALICE, BOB, secured

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.console_client import Browser


def session_ids(client: Browser) -> set[str]:
    return set(client.cookies.values())


async def test_login_leads_to_the_requested_page_and_logout_ends_the_session(tmp_path: Path) -> None:
    async with secured(tmp_path) as settings, browser(settings) as client:
        first = await client.get("/topics?q=a")
        assert (first.status, first.headers["location"]) == (303, "/login?next=/topics%3Fq%3Da".replace("/t", "%2Ft"))
        async with client.stream("/topics") as source:
            assert [await source.next(), await source.next()] == [("ended", "the session has ended"), None]
        token = await client.token("/login?next=%2Ftopics")
        before = session_ids(client)
        fields = {"csrf": token, "user": "alice", "password": "wrong", "mechanism": PLAIN, "next": "/topics"}
        refused = await client.post("/login", fields)
        assert refused.status == 403
        assert "wrong" not in refused.text
        accepted = await client.post("/login", fields | {"password": "s3cret"})
        assert (accepted.status, accepted.headers["location"]) == (303, "/topics")
        assert "HttpOnly; SameSite=Strict" in accepted.headers["set-cookie"]
        assert session_ids(client).isdisjoint(before)
        page = await client.get("/cluster")
        assert page.status == 200
        assert '<span class="mono">alice</span>' in page.text
        assert "s3cret" not in page.text
        logged_in = dict(client.cookies)
        token = await client.token("/cluster")
        async with client.stream("/cluster") as source:
            assert "running" in await source.next_of("state")
            left = await client.post("/logout", {"csrf": token})
            assert [await source.next(), await source.next()] == [("ended", "the session has ended"), None]
        assert left.headers["location"] == "/login"
        client.cookies.update(logged_in)
        assert (await client.get("/cluster")).status == 303


async def test_address_after_the_login_is_of_the_console(tmp_path: Path) -> None:
    async with secured(tmp_path) as settings, browser(settings) as client:
        for target in ("//evil.example", "https://evil.example", "/\\evil.example", "/login", "/a\r\nb"):
            token = await client.token("/login")
            fields = {"csrf": token, "user": "bob", "password": "p2", "mechanism": PLAIN, "next": target}
            accepted = await client.post("/login", fields)
            assert (accepted.status, accepted.headers["location"]) == (303, "/cluster")
            client.cookies.clear()


async def test_login_to_a_cluster_without_sasl_creates_no_session() -> None:
    async with browser(Settings(f"127.0.0.1:{free_port()}")) as client:
        before = session_ids(client)
        token = await client.token("/unknown")
        fields = {"csrf": token, "user": "bob", "password": "p2", "mechanism": PLAIN}
        refused = await client.post("/login", fields)
        assert (refused.status, refused.headers["location"]) == (303, "/cluster")
        assert session_ids(client) != before
        assert "set-cookie" not in refused.headers


async def test_sessions_are_bounded_and_expire(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "SESSIONS_MAX", 2)
    async with secured(tmp_path) as settings:
        opened = Sessions(settings)
        first, second = [await opened.log_in(ALICE) for _ in range(2)]
        viewer = opened.viewer(first)  # the second one is idle for longer now
        assert viewer is not None
        async with asyncio.timeout(TIMEOUT_S):
            while viewer.observer.since_ms is None:  # the samples begin with the login
                await asyncio.sleep(0.01)
        third = await opened.log_in(ALICE)
        assert [opened.viewer(each) is None for each in (first, second, third)] == [False, True, False]
        monkeypatch.setattr(sessions, "IDLE_S", 0.0)
        assert opened.viewer(first) is None
        assert opened.viewer("x" * 43) is None
        opened.close()


async def test_sessions_with_the_same_credentials_share_a_viewer_until_the_last_one_ends(tmp_path: Path) -> None:
    async with secured(tmp_path) as settings:
        opened = Sessions(settings)
        first, second, other = [await opened.log_in(each) for each in (ALICE, ALICE, BOB)]
        viewer = opened.viewer(first)
        assert viewer is not None
        assert opened.viewer(second) is viewer
        assert opened.viewer(other) is not viewer
        with pytest.raises(AuthenticationFailed):
            await opened.log_in(UserPassword(PLAIN, "alice", "wrong"))
        opened.end(first)
        assert opened.viewer(second) is viewer
        assert (await viewer.cluster.fetch_metadata([])).brokers
        opened.end_all_of(viewer)
        assert opened.viewer(second) is None
        assert opened.viewer(other) is not None
        opened.close()
