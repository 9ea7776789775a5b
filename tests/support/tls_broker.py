"""A broker as a process, with listeners for clients with TLS: one without and one with required client certificates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.single_broker import SingleBroker

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class TlsBroker(SingleBroker):
    """The broker. `stores` has the properties `ssl.*` of its certificates."""

    def __init__(self, folder: Path, stores: Mapping[str, str]) -> None:
        settings = {"listener.name.mutual.ssl.client.auth": "required", **stores}
        super().__init__(folder, {"SSL": "SSL", "MUTUAL": "SSL"}, settings)
        self.tls, self.mutual = self.addresses["SSL"], self.addresses["MUTUAL"]
