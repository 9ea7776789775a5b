"""The configurations of docs/how-to/proxy.md, run by HAProxy and nginx in front of a broker and of the console."""

from __future__ import annotations

import http.client
import re
import socket
import ssl
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

import pytest

from odradek import client
from tests.support.browser import console
from tests.support.certificates import Issued, issue
from tests.support.command_line import TIMEOUT_S
from tests.support.console_client import CSRF, SMALL
from tests.support.page_commands import blocks
from tests.support.ports import HOST, free_port, free_ports
from tests.support.proxies import haproxy, listening_socket, nginx, program
from tests.support.running_node import running

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.interop

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "proxy.md"
BLOCKS: Final = {block.title: block.text for block in blocks(PAGE.read_text(encoding="utf-8"))}
NAME: Final = "console.example.com"


async def test_clients_of_haproxy_receive_its_address_and_commit_a_transaction(tmp_path: Path) -> None:
    program("haproxy")
    with ExitStack() as stack:
        listening = [stack.enter_context(listening_socket()) for _ in range(3)]
        address = f"{HOST}:{listening[0].getsockname()[1]}"
        ports = free_ports(4)
        configuration = BLOCKS["haproxy.cfg"]
        for number, port in enumerate(ports[:3], 1):
            configuration = configuration.replace(f"10.0.0.{number}:9192", f"{HOST}:{port}")
        stack.enter_context(haproxy(tmp_path, configuration, listening))
        listeners = f"PROXY://{HOST}:{ports[0]},CLIENT://{HOST}:{ports[3]}"
        advertised = f"PROXY://{address},CLIENT://{HOST}:{ports[3]}"
        async with (
            running(
                tmp_path / "data",
                *SMALL,
                f"listeners={listeners}",
                f"advertised.listeners={advertised}",
                "inter.broker.listener.name=CLIENT",
            ),
            client.Cluster(address) as cluster,
        ):
            await client.create_topic(cluster, "payments", partitions=1)
            producer = client.Producer(cluster, transactional_id="payments-1")
            await producer.begin()
            await producer.send("payments", [client.ProducerRecord(b"alice", b"3")])
            await producer.commit()
            metadata = await cluster.fetch_metadata(None)
            batches = client.Consumer(cluster, "payments").batches()
            values = [record.value for record in await anext(batches)]
            await batches.aclose()
    assert [f"{broker.host}:{broker.port}" for broker in metadata.brokers.values()] == [address]
    assert values == [b"3"]


@pytest.fixture(scope="module")
def certificates() -> tuple[Issued, Issued]:
    """Return the certificate of an authority, and that of the proxy."""
    authority = issue("authority", ca=True)
    return authority, issue(NAME, authority, hosts=[NAME])


@pytest.fixture(params=["nginx", "haproxy"])
def proxy(request: pytest.FixtureRequest, certificates: tuple[Issued, Issued], tmp_path: Path) -> Iterator[int]:
    """Run a proxy of the page in front of a console without a cluster. Return the port of the proxy."""
    program(request.param)
    certificate, key = certificates[1].pem, certificates[1].key_pem()
    (tmp_path / "console.crt").write_text(certificate)
    (tmp_path / "console.key").write_text(key)
    (tmp_path / "console.pem").write_text(certificate + key)
    with ExitStack() as stack:
        address = stack.enter_context(console(f"{HOST}:{free_port()}", "--allow-host", NAME))
        listening = stack.enter_context(listening_socket())
        configuration = BLOCKS["nginx.conf" if request.param == "nginx" else "console.cfg"]
        configuration = configuration.replace("127.0.0.1:8080", address.removeprefix("http://"))
        configuration = re.sub(r"/etc/(?:nginx|haproxy)/", f"{tmp_path}/", configuration)
        if request.param == "nginx":
            stack.enter_context(nginx(tmp_path, configuration, listening))
        else:
            stack.enter_context(haproxy(tmp_path, configuration, [listening]))
        yield listening.getsockname()[1]


class Browser:
    """Sends requests over TLS to a proxy, as a page of the console does."""

    def __init__(self, port: int, authority: Issued) -> None:
        self._port = port
        self._context = ssl.create_default_context(cadata=authority.pem)
        self.host = f"{NAME}:{port}"

    @contextmanager
    def request(
        self, method: str, path: str, body: str | None = None, **headers: str
    ) -> Iterator[http.client.HTTPResponse]:
        connection = http.client.HTTPConnection(NAME, self._port)
        plain = socket.create_connection((HOST, self._port), TIMEOUT_S)
        connection.sock = self._context.wrap_socket(plain, server_hostname=NAME)
        given = {"Host": self.host, "Sec-Fetch-Site": "same-origin"}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request(method, path, body, given)
            with connection.getresponse() as response:
                yield response
        finally:
            connection.close()


def test_updates_pass_a_proxy_without_delay(proxy: int, certificates: tuple[Issued, Issued]) -> None:
    with Browser(proxy, certificates[0]).request("GET", "/cluster", accept="text/event-stream") as response:
        assert response.status == 200
        assert response.headers["Content-Type"].startswith("text/event-stream")
        # The stream does not end, so a proxy that collects it would send nothing.
        assert response.readline() == b"retry: 2000\n"
        assert response.readline() == b"\n"
        assert response.readline() == b"event: state\n"


def test_forms_and_cookies_pass_a_proxy(proxy: int, certificates: tuple[Issued, Issued]) -> None:
    browser = Browser(proxy, certificates[0])
    with browser.request("GET", "/cluster") as page:
        token = CSRF.search(page.read().decode())
        cookie = page.headers["Set-Cookie"]
    assert token is not None
    assert {part.strip() for part in cookie.lower().split(";")} >= {"secure", "httponly", "samesite=strict"}
    sent = {
        "cookie": cookie.partition(";")[0],
        "origin": f"https://{browser.host}",
        "content_type": "application/x-www-form-urlencoded",
    }
    with browser.request("POST", "/logout", urlencode({"csrf": token[1]}), **sent) as ended:
        assert (ended.status, ended.headers["Location"]) == (303, "/login")
    with browser.request("GET", "/cluster", Host="evil.example") as refused:
        assert refused.status == 421
