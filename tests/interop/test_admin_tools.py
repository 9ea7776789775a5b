"""Kafka's admin tools: a command prints the same output with Odradek and with Apache Kafka."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from odradek.broker.dispatch.doc import LEFT_OUT
from odradek.protocol.messages import APIS
from tests.interop.group_helpers import make_topic, write_records

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.interop.drivers.base import Driver
    from tests.support.tool_comparison import ToolComparison

TOOLS = "Kafka's tools 4.3"
pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


def versions(printed: str) -> dict[str, str]:
    """Return the printed versions by API name. The tool prints the key alone of an API that is newer than the tool."""
    rows = (re.fullmatch(r"\s+\w+\((\d+)\): (.+?),?", line) for line in printed.splitlines())
    return {APIS[int(row[1])][1]: row[2] for row in rows if row is not None}


@pytest.mark.feature("kafka-broker-api-versions", client=TOOLS)
def test_broker_api_versions_tool_prints_the_same(pair: ToolComparison) -> None:
    finished = pair.finished("kafka-broker-api-versions")
    output = {broker: versions(tool_run.stdout) for broker, tool_run in finished.items()}
    odradek, kafkas = output["odradek"], output["kafka"]
    assert len(kafkas) > 60
    different = {api for api in kafkas if odradek.get(api) != kafkas[api]}
    assert {api for api in different if odradek.get(api, "UNSUPPORTED") != "UNSUPPORTED"} == set()
    assert different == {api for apis in LEFT_OUT.values() for api in apis}


def log_dirs(lines: list[str]) -> object:
    """Return the output without directories and sizes. Sizes depend on the batches of the client."""
    [text] = [line for line in lines if line.startswith("{")]
    output = json.loads(text)
    for broker in output["brokers"]:
        for directory in broker["logDirs"]:
            assert directory.pop("logDir")
            directory["partitions"].sort(key=lambda row: row["partition"])
            for row in directory["partitions"]:
                assert row.pop("size") > 0
    return output


@pytest.mark.feature("kafka-log-dirs", client=TOOLS)
def test_log_dirs_tool_prints_the_same(pair: ToolComparison, drivers: Callable[[str], Driver], name: str) -> None:
    make_topic(pair, name)
    for bootstrap in pair.bootstraps.values():
        write_records(drivers, bootstrap, name, 20)
    tool = "kafka-log-dirs"
    output = {broker: log_dirs(lines) for broker, lines in pair.both(tool, "--describe", "--topic-list", name).items()}
    assert output["odradek"] == output["kafka"]
    pair.same(tool, "--describe", "--topic-list", name, "--broker-list", "7")


@pytest.mark.feature(
    "kafka-reassign-partitions, kafka-leader-election: operations possible with one broker", client=TOOLS
)
def test_reassignment_and_election_tools_print_the_same(
    pair: ToolComparison, drivers: Callable[[str], Driver], name: str, tmp_path: Path
) -> None:
    make_topic(pair, name)
    for bootstrap in pair.bootstraps.values():
        write_records(drivers, bootstrap, name, 20)  # a partition without a log has no log directory
    topics, goal = tmp_path / "topics.json", tmp_path / "goal.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": name}]}))
    rows = [{"topic": name, "partition": number, "replicas": [1]} for number in range(2)]
    goal.write_text(json.dumps({"version": 1, "partitions": rows}))
    tool = "kafka-reassign-partitions"
    pair.same(tool, "--topics-to-move-json-file", str(topics), "--broker-list", "1", "--generate")
    for verb in ("--execute", "--verify", "--cancel"):
        pair.same(tool, "--reassignment-json-file", str(goal), verb)
    goal.write_text(json.dumps({"version": 1, "partitions": [{**rows[0], "replicas": [1, 9]}]}))
    pair.same(tool, "--reassignment-json-file", str(goal), "--execute")
    pair.same(tool, "--list")
    for kind in ("preferred", "unclean"):
        pair.same("kafka-leader-election", "--election-type", kind, "--topic", name, "--partition", "0")
        pair.same("kafka-leader-election", "--election-type", kind, "--topic", f"no-{name}", "--partition", "0")
