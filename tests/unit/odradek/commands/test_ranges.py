"""Numbers that a field of a request cannot hold: the command names the argument and its range before it connects."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from odradek.commands.application import app

if TYPE_CHECKING:
    from pathlib import Path

WHERE = ("--bootstrap", "127.0.0.1:1")
INT16, INT32, INT64 = "32767", "2147483647", "9223372036854775807"
ABOVE_INT16, ABOVE_INT32, ABOVE_INT64 = "32768", "2147483648", "9223372036854775808"


@pytest.mark.parametrize(
    ("words", "named", "highest"),
    [
        (("topics", "create", "t", "--partitions", ABOVE_INT32), "--partitions", INT32),
        (("topics", "create", "t", "--partitions", "9" * 30), "--partitions", INT32),
        (("topics", "create", "t", "--partitions", "-2"), "--partitions", INT32),
        (("topics", "create", "t", "--replication-factor", ABOVE_INT16), "--replication-factor", INT16),
        (("partitions", "add", "t", ABOVE_INT32), "count", INT32),
        (("partitions", "elect", f"t:{ABOVE_INT32}"), "partition", INT32),
        (("partitions", "reassign", "t", "--replicas", f"1,{ABOVE_INT32}"), "--replicas", INT32),
        (("partitions", "reassign", "t", "--brokers", "-1"), "--brokers", INT32),
        (("records", "delete", "t", "--before", ABOVE_INT64), "--before", INT64),
        (("consume", "t", "--partition", ABOVE_INT32), "--partition", INT32),
        (("consume", "t", "--from", ABOVE_INT64), "--from", INT64),
        (("produce", "t", "v", "--partition", ABOVE_INT32), "--partition", INT32),
        (("groups", "reset", "g", "--topic", f"t:{ABOVE_INT32}", "--to-latest"), "partition", INT32),
        (("txns", "abort", "--topic", "t", "--partition", ABOVE_INT32, "--producer-id", "1"), "--partition", INT32),
        (("txns", "abort", "--topic", "t", "--partition", "1", "--producer-id", ABOVE_INT64), "--producer-id", INT64),
        (("producers", "list", "t", "--partition", ABOVE_INT32), "--partition", INT32),
        (("tokens", "create", "--max-lifetime", ABOVE_INT64), "--max-lifetime", INT64),
        (("tokens", "renew", "id", "--period", ABOVE_INT64), "--period", INT64),
        (("tokens", "expire", "id", "--period", ABOVE_INT64), "--period", INT64),
        (("features", "upgrade", f"metadata.version={ABOVE_INT16}"), "level", INT16),
        (("brokers", "unregister", ABOVE_INT32), "node_id", INT32),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, tuple) else "",
)
def test_number_that_no_request_can_hold_is_refused_with_its_name_and_range(
    words: tuple[str, ...], named: str, highest: str
) -> None:
    refused = CliRunner().invoke(app, [*words, *WHERE])
    assert refused.exit_code == 2
    message = re.sub(r"[\s│]+", " ", refused.stderr)
    assert named in message
    assert re.search(rf"a number from (0|1|-1) to {highest}\b", message), message


@pytest.mark.parametrize(("partition", "replica"), [(2**31, 1), (0, 2**31)])
def test_plan_with_a_number_that_no_request_can_hold_is_refused(tmp_path: Path, partition: int, replica: int) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"partitions": [{"topic": "t", "partition": partition, "replicas": [replica]}]}))
    refused = CliRunner().invoke(app, ["partitions", "reassign", "--from-file", str(plan), *WHERE])
    assert refused.exit_code == 2
    assert f"{2**31}: expected a number from 0 to {INT32}" in refused.stderr


def test_port_above_65535_is_refused() -> None:
    refused = CliRunner().invoke(app, ["up", "--port", "70000"])
    assert refused.exit_code == 2
    assert "70000 is not a number from 0 to 65535" in refused.stderr
