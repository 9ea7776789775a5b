"""Check of changed TLS settings: it concerns the values that apply after the operations of the request."""

from dataclasses import replace
from typing import Any

import pytest

from odradek.broker.apis import incremental_alter_configs
from odradek.broker.config.addresses import parse_listeners
from odradek.broker.config.properties import Config
from odradek.broker.config.topics import TopicSettings
from odradek.broker.process.clock import SystemClock
from odradek.broker.tls.certificates import Certificates
from odradek.broker.tls.node_tls import NodeTls
from odradek.cluster.controller.messages.settings import ConfigOperation
from odradek.cluster.metadata.image import RESOURCE_BROKER
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.storage.disk.os_disk import OsDisk
from tests.support.broker_context import context, image, services_of
from tests.support.tls_rig import node_config

SET, DELETE, APPEND, SUBTRACT = ConfigOperation
PROTOCOLS, SUITES = "ssl.enabled.protocols", "ssl.cipher.suites"
TLS_1_3_SUITES = "TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256"
TLS_1_2_SUITE = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"


async def is_refused(
    held: dict[str, str], *changes: tuple[str, ConfigOperation, str | None], static: Config | None = None
) -> bool:
    """Return True if a broker with the dynamic values `held` and the file `static` refuses the changes."""
    metadata = replace(image(), configs={(RESOURCE_BROKER, "1"): held})
    request_context = context(1, metadata)
    static, disk = static or node_config(), OsDisk()
    certificates = Certificates(NodeTls(static, parse_listeners(static), disk.read_file), static, disk, SystemClock())
    services = services_of(request_context)
    services.certificates, services.topic_settings = certificates, TopicSettings(static)
    entries = [AlterableConfig(name, operation, value) for name, operation, value in changes]
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(RESOURCE_BROKER, "1", entries)])
    check = incremental_alter_configs.check(request_context, request)
    remainder = None if check is None else await check
    if remainder is None:
        return False
    response: Any = incremental_alter_configs.refuse(request_context, remainder.request, ErrorCode.NONE, None)
    remainder.complete(response)
    assert [result.error_code for result in response.responses] == [ErrorCode.INVALID_REQUEST]
    return True


@pytest.mark.parametrize(("version", "refused"), [("TLSv1.2", False), ("TLSv1.3", True)])
async def test_subtracted_version_is_removed_from_the_default_before_the_check(version: str, refused: bool) -> None:
    """The three cipher suites of TLS 1.3 are valid without TLS 1.2, and invalid without TLS 1.3."""
    assert await is_refused({SUITES: TLS_1_3_SUITES}, (PROTOCOLS, SUBTRACT, version)) is refused


@pytest.mark.parametrize(
    ("held", "change", "refused"),
    [
        ({PROTOCOLS: "TLSv1.3"}, (PROTOCOLS, APPEND, "TLSv1.2"), False),
        ({PROTOCOLS: "TLSv1.2,TLSv1.3"}, (PROTOCOLS, SUBTRACT, "TLSv1.3"), True),
        ({PROTOCOLS: "TLSv1.3"}, (PROTOCOLS, DELETE, None), False),
        ({PROTOCOLS: "TLSv1.3"}, (PROTOCOLS, SET, "TLSv1.2"), True),
    ],
)
async def test_operation_is_applied_to_the_dynamic_value_before_the_check(
    held: dict[str, str], change: tuple[str, ConfigOperation, str | None], refused: bool
) -> None:
    assert await is_refused({SUITES: TLS_1_3_SUITES, **held}, change) is refused


@pytest.mark.parametrize(
    ("operation", "value", "refused"), [(DELETE, None, True), (SUBTRACT, "TLSv1.2", False), (APPEND, "TLSv1.3", False)]
)
async def test_operation_is_checked_with_the_value_of_the_file_of_the_node(
    operation: ConfigOperation, value: str | None, refused: bool
) -> None:
    """The value of the file applies after DELETE. SUBTRACT and APPEND start from the dynamic value."""
    held = {SUITES: TLS_1_3_SUITES, PROTOCOLS: "TLSv1.3"}
    static = node_config(ssl_enabled_protocols=("TLSv1.2",))
    assert await is_refused(held, (PROTOCOLS, operation, value), static=static) is refused


async def test_list_is_appended_to_the_value_of_the_file_without_a_dynamic_value() -> None:
    """TLS 1.3 alone is refused with a cipher suite of TLS 1.2."""
    static = node_config(ssl_enabled_protocols=("TLSv1.2",))
    assert not await is_refused({SUITES: TLS_1_2_SUITE}, (PROTOCOLS, APPEND, "TLSv1.3"), static=static)
    assert await is_refused({SUITES: TLS_1_2_SUITE}, (PROTOCOLS, SET, "TLSv1.3"), static=static)


async def test_append_to_a_property_that_is_no_list_is_left_to_the_controller() -> None:
    """The controller refuses it with INVALID_CONFIG."""
    assert not await is_refused({}, ("ssl.protocol", APPEND, "TLSv1.2"), (SUITES, SET, TLS_1_2_SUITE + "X"))
