"""Options for TLS and SASL of source and sink."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest

from odradek.client.security.credentials import UserPassword
from odradek.spark.errors import InvalidInput
from odradek.spark.options import sink_options
from odradek.spark.source_options import source_options
from tests.support.certificates import issue

if TYPE_CHECKING:
    from collections.abc import Callable

    from odradek.spark.options import SinkOptions
    from odradek.spark.source_options import SourceOptions

SECRET = "alice-secret"
SECURITY = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "SCRAM-SHA-256",
    "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
    f'username="alice" password="{SECRET}";',
    "kafka.ssl.truststore.type": "PEM",
    "kafka.ssl.truststore.certificates": issue("authority", ca=True).pem,
}


def sink(**changed: str) -> SinkOptions:
    return sink_options({"kafka.bootstrap.servers": "a:1", "sink": "s", **SECURITY, **changed})


def source(**changed: str) -> SourceOptions:
    return source_options({"kafka.bootstrap.servers": "a:1", "subscribe": "t", **SECURITY, **changed})


@pytest.mark.parametrize("options", [sink, source])
def test_security_reaches_the_tasks_and_is_in_no_text(options: Callable[..., SinkOptions | SourceOptions]) -> None:
    given = options()
    assert given.settings.security.credentials == UserPassword("SCRAM-SHA-256", "alice", SECRET)
    assert pickle.loads(pickle.dumps(given)) == given
    assert SECRET not in repr(given)


@pytest.mark.parametrize("options", [sink, source])
def test_invalid_security_is_refused_without_the_secret(options: Callable[..., SinkOptions | SourceOptions]) -> None:
    text = SECURITY["kafka.sasl.jaas.config"]
    with pytest.raises(InvalidInput, match=r"options kafka\.\*: sasl\.jaas\.config does not end") as refused:
        options(**{"kafka.sasl.jaas.config": text.removesuffix(";")})
    assert SECRET not in str(refused.value)
    with pytest.raises(InvalidInput, match=r"unknown option kafka\.ssl\.provider"):
        options(**{"kafka.ssl.provider": "x"})
