"""Attempts of the hostile tenant on the configuration, the users and the ACLs of the cluster."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from odradek.protocol.messages import (
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_user_scram_credentials,
    describe_configs,
    elect_leaders,
    incremental_alter_configs,
    update_features,
    write_txn_markers,
)
from odradek.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from odradek.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from odradek.protocol.messages.describe_acls import DescribeAclsRequest
from odradek.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from odradek.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from odradek.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from odradek.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from odradek.protocol.messages.unregister_broker import UnregisterBrokerRequest
from tests.sim.intrusions.attempt import CLUSTER, TIMEOUT_MS, TOPIC, Attempt, Target
from tests.sim.options.tenants import MALLORY

if TYPE_CHECKING:
    from odradek.protocol.schema import Message

OF_TOPIC, OF_BROKER = 2, 4
"""Resource types of configurations."""
SALT: Final = b"salt of the hostile tenant"


def _write_markers(target: Target) -> "Message":
    topics = [write_txn_markers.WritableTxnMarkerTopic(target.topic, [0])]
    marker = write_txn_markers.WritableTxnMarker(
        target.producer_id, target.producer_epoch, bool(target.seed % 2), topics
    )
    return write_txn_markers.WriteTxnMarkersRequest([marker])


def _configs(resource_type: int, name: str) -> "Message":
    rows = [alter_configs.AlterableConfig("retention.ms", "1")]
    return alter_configs.AlterConfigsRequest([alter_configs.AlterConfigsResource(resource_type, name, rows)])


def _incremental_configs(resource_type: int, name: str) -> "Message":
    rows = [incremental_alter_configs.AlterableConfig("retention.ms", 0, "1")]
    return incremental_alter_configs.IncrementalAlterConfigsRequest(
        [incremental_alter_configs.AlterConfigsResource(resource_type, name, rows)]
    )


def _describe_configs(resource_type: int, name: str) -> "Message":
    rows = [describe_configs.DescribeConfigsResource(resource_type, name, None)]
    return describe_configs.DescribeConfigsRequest(rows)


def _scram(target: Target) -> "Message":
    user = ("admin", "alice", "bob")[target.seed % 3]
    if target.seed % 2:
        rows = [alter_user_scram_credentials.ScramCredentialDeletion(user, 1)]
        return alter_user_scram_credentials.AlterUserScramCredentialsRequest(deletions=rows)
    new = alter_user_scram_credentials.ScramCredentialUpsertion(user, 1, 4096, SALT, bytes(32))
    return alter_user_scram_credentials.AlterUserScramCredentialsRequest(upsertions=[new])


def _quotas(_target: Target) -> "Message":
    entity = [alter_client_quotas.RequestEntityData("user", "bob")]
    operations = [alter_client_quotas.OpData("producer_byte_rate", 1.0)]
    return alter_client_quotas.AlterClientQuotasRequest([alter_client_quotas.RequestEntryData(entity, operations)])


def _reassign(target: Target) -> "Message":
    rows = [alter_partition_reassignments.ReassignablePartition(0, [target.broker])]
    topics = [alter_partition_reassignments.ReassignableTopic(target.topic, rows)]
    return alter_partition_reassignments.AlterPartitionReassignmentsRequest(TIMEOUT_MS, topics=topics)


def _elect(target: Target) -> "Message":
    rows = [elect_leaders.TopicPartitions(target.topic, [0])]
    return elect_leaders.ElectLeadersRequest(1, rows, TIMEOUT_MS)


def _features(_target: Target) -> "Message":
    rows = [update_features.FeatureUpdateKey("transaction.version", 0, upgrade_type=3)]
    return update_features.UpdateFeaturesRequest(TIMEOUT_MS, rows)


def _grant(_target: Target) -> "Message":
    return CreateAclsRequest([AclCreation(2, "*", 3, f"User:{MALLORY}", "*", 2, 3)])


def _revoke(_target: Target) -> "Message":
    return DeleteAclsRequest([DeleteAclsFilter(1, None, 1, None, None, 1, 1)])


ON_CLUSTER: Final[Mapping[str, Attempt]] = {
    "WriteTxnMarkers": Attempt(_write_markers, (1,), CLUSTER),
    "AlterConfigs": Attempt(lambda t: _configs(OF_TOPIC, t.topic), (1, 2), TOPIC),
    "AlterConfigs of a broker": Attempt(lambda t: _configs(OF_BROKER, str(t.broker)), (2,), CLUSTER),
    "IncrementalAlterConfigs": Attempt(lambda t: _incremental_configs(OF_TOPIC, t.topic), (1,), TOPIC),
    "IncrementalAlterConfigs of all brokers": Attempt(lambda _: _incremental_configs(OF_BROKER, ""), (1,), CLUSTER),
    "DescribeConfigs": Attempt(lambda t: _describe_configs(OF_TOPIC, t.topic), (2, 4), TOPIC),
    "DescribeConfigs of a broker": Attempt(lambda t: _describe_configs(OF_BROKER, str(t.broker)), (4,), CLUSTER),
    "CreateAcls": Attempt(_grant, (1, 3), CLUSTER),
    "DeleteAcls": Attempt(_revoke, (1, 3), CLUSTER),
    "DescribeAcls": Attempt(lambda _: DescribeAclsRequest(1, None, 1, None, None, 1, 1), (1, 3), CLUSTER),
    "AlterUserScramCredentials": Attempt(_scram, (0,), CLUSTER),
    "DescribeUserScramCredentials": Attempt(lambda _: DescribeUserScramCredentialsRequest(None), (0,), CLUSTER),
    "AlterClientQuotas": Attempt(_quotas, (1,), CLUSTER),
    "DescribeClientQuotas": Attempt(lambda _: DescribeClientQuotasRequest(), (1,), CLUSTER),
    "AlterPartitionReassignments": Attempt(_reassign, (0,), CLUSTER),
    "ListPartitionReassignments": Attempt(lambda _: ListPartitionReassignmentsRequest(TIMEOUT_MS), (0,), CLUSTER),
    "ElectLeaders": Attempt(_elect, (2,), CLUSTER),
    "DescribeLogDirs": Attempt(lambda _: DescribeLogDirsRequest(None), (4,), CLUSTER),
    "UpdateFeatures": Attempt(_features, (1,), CLUSTER),
    "UnregisterBroker": Attempt(lambda t: UnregisterBrokerRequest(t.broker), (0,), CLUSTER),
}
"""Requests by name."""
