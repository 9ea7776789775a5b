"""Checks of requests: host, origin, token, and the headers of responses."""

from __future__ import annotations

import pytest
from starlette.requests import Request

from odradek.console.settings import Settings
from odradek.console.web.guard import FORM_BYTES_MAX, is_allowed_host, is_same_origin
from tests.support.console_client import browser
from tests.support.ports import free_port

SETTINGS = Settings(f"127.0.0.1:{free_port()}")


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1:8080", True),
        ("[::1]:8080", True),
        ("localhost:8080", True),
        ("LOCALHOST", True),
        ("console.example", True),
        ("evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("evil.example@127.0.0.1", False),
        ("127.0.0.1/evil.example", False),
        ("", False),
        ("[::1", False),
    ],
)
def test_host_is_an_address_or_a_name_of_the_console(host: str, expected: bool) -> None:
    assert is_allowed_host(host, ["console.example"]) is expected


@pytest.mark.parametrize(
    ("origin", "site", "expected"),
    [
        ("http://console.example", "same-origin", True),
        ("https://console.example", None, True),
        (None, "same-origin", True),
        (None, None, False),
        ("http://evil.example", None, False),
        ("http://evil.example", "same-origin", False),
        ("http://console.example", "cross-site", False),
        ("http://console.example", "none", False),
        ("null", None, False),
    ],
)
def test_request_is_of_the_same_origin_if_the_browser_says_so(
    origin: str | None, site: str | None, expected: bool
) -> None:
    request = Request({"type": "http", "headers": [(b"host", b"console.example")]})
    assert is_same_origin(origin, site, request) is expected


async def test_name_of_another_site_is_refused() -> None:
    async with browser(SETTINGS) as client:
        assert (await client.get("/cluster", host="evil.example")).status == 421


async def test_form_without_the_token_of_the_session_is_refused() -> None:
    async with browser(SETTINGS) as client:
        token = await client.token("/unknown")
        assert (await client.post("/unknown", {"csrf": token})).status == 404
        assert (await client.post("/unknown", {"csrf": token[::-1]})).status == 403
        assert (await client.post("/unknown", {})).status == 403
        client.cookies.clear()
        assert (await client.post("/unknown", {"csrf": token})).status == 403


async def test_form_of_another_site_is_refused_with_a_valid_token() -> None:
    async with browser(SETTINGS) as client:
        token = await client.token("/unknown")
        assert (await client.post("/unknown", {"csrf": token}, sec_fetch_site="cross-site")).status == 403
        assert (await client.post("/unknown", {"csrf": token}, origin="http://evil.example")).status == 403


async def test_long_form_and_other_types_are_refused() -> None:
    async with browser(SETTINGS) as client:
        token = await client.token("/unknown")
        assert (await client.post("/unknown", {"csrf": token, "a": "a" * FORM_BYTES_MAX})).status == 413
        assert (await client.post("/unknown", {"csrf": token}, content_type="text/plain")).status == 415


async def test_responses_have_security_headers_and_no_inline_code() -> None:
    async with browser(SETTINGS) as client:
        for path in ("/cluster", "/unknown", "/static/console.js"):
            page = await client.get(path)
            assert page.headers["content-security-policy"].startswith("default-src 'self';")
            assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
            assert page.headers["x-content-type-options"] == "nosniff"
        page = await client.get("/cluster", cookie="")
        assert "HttpOnly; SameSite=Strict" in page.headers.get("set-cookie", "") or client.cookies
        assert "style=" not in page.text
        assert "<script>" not in page.text


async def test_link_from_another_site_reloads_the_page_and_keeps_the_session() -> None:
    async with browser(SETTINGS) as client:
        page = await client.get("/cluster?a=1", sec_fetch_site="cross-site", sec_fetch_mode="navigate")
        assert page.headers["refresh"] == "0; url=/cluster?a=1"
        assert "set-cookie" not in page.headers
        page = await client.get("//evil.example/", sec_fetch_site="cross-site", sec_fetch_mode="navigate")
        assert page.headers["refresh"] == "0; url=/evil.example/"
