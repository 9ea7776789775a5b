from __future__ import annotations

from typing import Any

import pytest

from odradek.spark.errors import InvalidInput
from odradek.spark.options import Mode, sink_options

GIVEN = {"kafka.bootstrap.servers": "127.0.0.1:9092", "sink": "delays", "topic": "out"}


def test_names_of_options_ignore_upper_and_lower_case() -> None:
    sink = sink_options({**GIVEN, "ledgerTopic": "books", "kafka.Transaction.timeout.ms": "1000"})
    assert sink.transactional_id == "spark.delays"
    assert str(sink.ledger) == "books-0"
    assert sink.transaction_timeout_ms == 1000


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"maxOffsetsPerTrigger": "5"}, "unknown option maxOffsetsPerTrigger"),
        ({"kafka.linger.ms": "5"}, r"unknown option kafka\.linger\.ms"),
        ({"mode": "2PC"}, "option mode: '2PC' is no mode; use txn or 2pc"),
        ({"sink": ""}, "option sink is missing"),
        ({"topic": ""}, "option topic: '' is no name of a topic; use 1 to 249 letters"),
        ({"topic": None}, "option topic has the value None; give a text, or remove the option"),
        ({"Topic": "other"}, "an option is given twice, in upper and lower case"),
        ({"ledgerTopic": ".."}, "option ledgerTopic: '..' is no name of a topic"),
        ({"kafka.key.serializer": "s"}, r"unknown option kafka\.key\.serializer"),
        ({"kafka.transactional.id": "t"}, r"unknown option kafka\.transactional\.id"),
        ({"sink": "a b"}, "option sink: 'a b' is no name"),
        ({"kafka.bootstrap.servers": ""}, r"option kafka\.bootstrap\.servers is missing"),
        ({"kafka.acks": "1"}, r"option kafka\.acks: the sink supports all alone"),
        ({"kafka.security.protocol": "TLS"}, r"options kafka\.\*: security\.protocol is TLS, which does not exist"),
        ({"kafka.request.timeout.ms": "0"}, r"'0' is no positive number"),
        ({"kafka.request.timeout.ms": "soon"}, r"'soon' is no positive number"),
    ],
)
def test_invalid_option_is_refused_by_name(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        sink_options({**GIVEN, **changed})


def test_spaces_around_a_value_are_ignored_as_in_the_stock_sink() -> None:
    assert sink_options({**GIVEN, "topic": " out "}).topic == "out"


def test_mode_is_one_transaction_per_batch_unless_it_is_given() -> None:
    assert sink_options(GIVEN).mode is Mode.TRANSACTION
    sink = sink_options({**GIVEN, "mode": "2pc"})
    assert (sink.mode, sink.transactional_id, sink.task_id(3)) == (Mode.TWO_PHASE, "spark.delays", "spark.delays/3")


def test_options_of_the_caller_are_accepted() -> None:
    assert sink_options({**GIVEN, "batchId": "7"}, frozenset({"batchid"})).topic == "out"
