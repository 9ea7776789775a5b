"""The API table: version ranges, listeners, checks of its rows, and the generated documentation."""

from dataclasses import replace

import pytest

from odradek.broker.dispatch import doc as api_doc
from odradek.broker.dispatch.table import API_TABLE, EARLY_TABLE, QUORUM_APIS, check, served
from odradek.broker.requests.api import Gated
from odradek.broker.requests.listener import CONTROLLER
from odradek.protocol.messages.metadata import MetadataResponse
from tests.support.broker_context import config

# Version ranges that Apache Kafka 4.4 announces for the implemented APIs (Produce from 0, KAFKA-18659).
KAFKA_4_4 = {
    "Produce": (0, 13),
    "Fetch": (4, 18),
    "ListOffsets": (1, 11),
    "Metadata": (0, 13),
    "OffsetCommit": (2, 10),
    "OffsetFetch": (1, 10),
    "FindCoordinator": (0, 6),
    "JoinGroup": (0, 9),
    "Heartbeat": (0, 4),
    "LeaveGroup": (0, 5),
    "SyncGroup": (0, 5),
    "DescribeGroups": (0, 6),
    "ListGroups": (0, 5),
    "ApiVersions": (0, 5),
    "CreateTopics": (2, 7),
    "DeleteTopics": (1, 6),
    "DeleteRecords": (0, 2),
    "InitProducerId": (0, 5),
    "OffsetForLeaderEpoch": (2, 4),
    "AddPartitionsToTxn": (0, 5),
    "AddOffsetsToTxn": (0, 4),
    "EndTxn": (0, 5),
    "WriteTxnMarkers": (1, 2),
    "TxnOffsetCommit": (0, 6),
    "DescribeAcls": (1, 3),
    "CreateAcls": (1, 3),
    "DeleteAcls": (1, 3),
    "DescribeConfigs": (1, 4),
    "AlterConfigs": (0, 2),
    "DescribeLogDirs": (1, 5),
    "CreatePartitions": (0, 3),
    "CreateDelegationToken": (1, 3),
    "RenewDelegationToken": (1, 2),
    "ExpireDelegationToken": (1, 2),
    "DescribeDelegationToken": (1, 3),
    "IncrementalAlterConfigs": (0, 1),
    "DeleteGroups": (0, 3),
    "ElectLeaders": (0, 2),
    "AlterPartitionReassignments": (0, 1),
    "ListPartitionReassignments": (0, 0),
    "OffsetDelete": (0, 0),
    "DescribeClientQuotas": (0, 1),
    "AlterClientQuotas": (0, 1),
    "DescribeUserScramCredentials": (0, 0),
    "AlterUserScramCredentials": (0, 0),
    "DescribeQuorum": (0, 2),
    "UpdateFeatures": (0, 2),
    "UnregisterBroker": (0, 0),
    "DescribeCluster": (0, 2),
    "DescribeProducers": (0, 0),
    "DescribeTransactions": (0, 0),
    "ListTransactions": (0, 2),
    "ConsumerGroupHeartbeat": (0, 1),
    "ConsumerGroupDescribe": (0, 1),
    "ListConfigResources": (0, 1),
    "DescribeTopicPartitions": (0, 0),
    "UnregisterController": (0, 0),
}

# APIs between controllers, and from brokers to controllers. ApiVersions does not list them for clients.
CONTROLLER_APIS = {
    "Vote": (0, 2),
    "BeginQuorumEpoch": (0, 1),
    "EndQuorumEpoch": (0, 1),
    "AlterPartition": (2, 3),
    "Envelope": (0, 0),
    "FetchSnapshot": (0, 1),
    "BrokerRegistration": (0, 4),
    "BrokerHeartbeat": (0, 1),
    "AllocateProducerIds": (0, 0),
    "ControllerRegistration": (0, 0),
}

# APIs of connections that have not authenticated yet.
SASL_APIS = {"SaslHandshake": (0, 1), "SaslAuthenticate": (0, 2)}


def test_version_ranges_equal_those_of_kafka() -> None:
    served = {api.name: (api.lowest_announced, api.max_version) for api in API_TABLE}
    assert served == KAFKA_4_4 | CONTROLLER_APIS | SASL_APIS


def test_gated_versions_are_served_only_with_their_property() -> None:
    gated = {api.name: api.gated for api in API_TABLE if api.gated is not None}
    assert gated == {"InitProducerId": Gated(6, "transaction.two.phase.commit.enable")}
    for table in (API_TABLE, EARLY_TABLE):
        assert served(table, config()) == table
        rows = served(table, config("transaction.two.phase.commit.enable=true"))
        assert {api.name: api.max_version for api in rows} == {
            api.name: 6 if api.name == "InitProducerId" else api.max_version for api in table
        }


def test_controller_apis_are_served_only_on_controller_listeners() -> None:
    assert {api.name for api in API_TABLE if api.listeners == (CONTROLLER,)} == CONTROLLER_APIS.keys()


def test_only_produce_announces_unserved_versions() -> None:
    assert [(api.name, api.min_version) for api in API_TABLE if api.announced_min is not None] == [("Produce", 3)]


@pytest.mark.parametrize(
    "change",
    [
        {"key": 999},
        {"max_version": 99},
        {"response": MetadataResponse},
        {"announced_min": 9},
        {"gated": Gated(99, "auto.create.topics.enable")},
        {"gated": Gated(1, "auto.create.topics.enable")},
    ],
)
def test_invalid_row_of_the_api_table_is_refused(change: dict[str, object]) -> None:
    first = API_TABLE[0]
    with pytest.raises(AssertionError):
        check((replace(first, **change), *API_TABLE[1:]), QUORUM_APIS)  # type: ignore[arg-type]  # invalid on purpose


def test_unordered_or_duplicate_row_is_refused() -> None:
    for table in ((API_TABLE[1], API_TABLE[0]), (API_TABLE[0], API_TABLE[0])):
        with pytest.raises(AssertionError, match="in order of their keys"):
            check(table, ())


def test_generated_documentation_is_up_to_date() -> None:
    assert api_doc.PATH.read_text() == api_doc.render(API_TABLE), "python -m odradek.broker.dispatch.doc --write"


def test_every_api_has_a_behavior_paragraph() -> None:
    text = api_doc.render(API_TABLE)
    for api in API_TABLE:
        section = text.partition(f"\n## {api.name}\n")[2].partition("\n## ")[0]
        assert "Behavior:" in section, api.name


def test_no_line_of_the_documentation_ends_with_two_periods() -> None:
    assert [line for line in api_doc.render(API_TABLE).splitlines() if line.endswith("..")] == []
