"""The APIs that this broker serves, in the order of their keys.

ApiVersions, the dispatchers and docs/apis.md derive from API_TABLE. To add an API, add a file to
`odradek.broker.apis` and a row here.
"""

from dataclasses import replace
from typing import Any, Final

from odradek.broker.apis import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    allocate_producer_ids,
    alter_client_quotas,
    alter_configs,
    alter_partition,
    alter_partition_reassignments,
    alter_user_scram_credentials,
    api_versions,
    begin_quorum_epoch,
    broker_heartbeat,
    broker_registration,
    consumer_group_describe,
    consumer_group_heartbeat,
    controller_registration,
    create_acls,
    create_delegation_token,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_delegation_token,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_quorum_epoch,
    end_txn,
    envelope,
    expire_delegation_token,
    fetch,
    fetch_snapshot,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    renew_delegation_token,
    sasl_authenticate,
    sasl_handshake,
    sync_group,
    txn_offset_commit,
    unregister_broker,
    unregister_controller,
    update_features,
    vote,
    write_txn_markers,
)
from odradek.broker.config.properties import PROPERTIES, Config
from odradek.broker.config.property import Kind
from odradek.broker.contexts import QuorumRequestContext
from odradek.broker.requests.api import AnyApi, Api, Routing, never
from odradek.broker.requests.listener import CONTROLLER

API_TABLE: Final[tuple[AnyApi, ...]] = (
    produce.API,
    fetch.API,
    list_offsets.API,
    metadata.API,
    offset_commit.API,
    offset_fetch.API,
    find_coordinator.API,
    join_group.API,
    heartbeat.API,
    leave_group.API,
    sync_group.API,
    describe_groups.API,
    list_groups.API,
    sasl_handshake.API,
    api_versions.API,
    create_topics.API,
    delete_topics.API,
    delete_records.API,
    init_producer_id.API,
    offset_for_leader_epoch.API,
    add_partitions_to_txn.API,
    add_offsets_to_txn.API,
    end_txn.API,
    write_txn_markers.API,
    txn_offset_commit.API,
    describe_acls.API,
    create_acls.API,
    delete_acls.API,
    describe_configs.API,
    alter_configs.API,
    describe_log_dirs.API,
    sasl_authenticate.API,
    create_partitions.API,
    create_delegation_token.API,
    renew_delegation_token.API,
    expire_delegation_token.API,
    describe_delegation_token.API,
    delete_groups.API,
    elect_leaders.API,
    incremental_alter_configs.API,
    alter_partition_reassignments.API,
    list_partition_reassignments.API,
    offset_delete.API,
    describe_client_quotas.API,
    alter_client_quotas.API,
    describe_user_scram_credentials.API,
    alter_user_scram_credentials.API,
    vote.API,
    begin_quorum_epoch.API,
    end_quorum_epoch.API,
    describe_quorum.API,
    alter_partition.API,
    update_features.API,
    envelope.API,
    fetch_snapshot.API,
    describe_cluster.API,
    describe_producers.API,
    broker_registration.API,
    broker_heartbeat.API,
    unregister_broker.API,
    describe_transactions.API,
    list_transactions.API,
    allocate_producer_ids.API,
    consumer_group_heartbeat.API,
    consumer_group_describe.API,
    controller_registration.API,
    list_config_resources.API,
    describe_topic_partitions.API,
    unregister_controller.API,
)

QUORUM_APIS: Final[tuple[Api[QuorumRequestContext, Any, Any], ...]] = (
    fetch.METADATA_API,
    sasl_handshake.API,
    sasl_authenticate.API,
    create_topics.API,
    delete_topics.API,
    create_acls.API,
    delete_acls.API,
    alter_configs.API,
    create_partitions.API,
    create_delegation_token.API,
    renew_delegation_token.API,
    expire_delegation_token.API,
    elect_leaders.API,
    incremental_alter_configs.API,
    alter_partition_reassignments.API,
    list_partition_reassignments.API,
    alter_client_quotas.API,
    alter_user_scram_credentials.API,
    vote.API,
    begin_quorum_epoch.API,
    end_quorum_epoch.API,
    describe_quorum.API,
    update_features.API,
    envelope.API,
    fetch_snapshot.API,
    broker_registration.API,
    broker_heartbeat.API,
    unregister_broker.API,
    allocate_producer_ids.API,
    controller_registration.API,
    unregister_controller.API,
)
"""APIs that need no registered broker: early requests, and requests for the controller that arrive in an Envelope."""

EARLY_TABLE: Final[tuple[AnyApi, ...]] = tuple({api.key: api for api in (*API_TABLE, *QUORUM_APIS)}.values())
"""API_TABLE before the broker is registered: requests of rows that are not in QUORUM_APIS wait."""


CONTROLLER_TABLE: Final[tuple[AnyApi, ...]] = tuple(
    sorted(
        (
            *QUORUM_APIS,
            alter_partition.API,
            api_versions.API,
            describe_acls.API,
            describe_cluster.API,
            describe_configs.API,
        ),
        key=lambda api: api.key,
    )
)
"""The APIs of a node that is no broker. Its listeners serve those for controllers."""

API_NAMES: Final = {api.key: api.name for api in API_TABLE}


def served(table: tuple[AnyApi, ...], config: Config) -> tuple[AnyApi, ...]:
    """Return the rows of `table` for a broker with this configuration: with the gated versions that it enables."""
    return tuple(
        replace(api, max_version=api.gated.max_version)
        if api.gated is not None and getattr(config, PROPERTIES[api.gated.property_name].attribute)
        else api
        for api in table
    )


def check(table: tuple[AnyApi, ...], quorum_apis: tuple[AnyApi, ...]) -> None:
    """Raise AssertionError at import if a row contradicts its messages, its neighbors, or QUORUM_APIS."""
    keys = [api.key for api in table]
    assert keys == sorted(dict.fromkeys(keys)), "rows are in order of their keys, each key once"
    for api in table:
        request, response = api.request, api.response
        assert request.API_KEY == response.API_KEY == api.key, f"{api.name}: messages of another API"
        assert request.MIN_VERSION <= api.min_version <= api.max_version <= request.MAX_VERSION, f"{api.name}: versions"
        assert api.lowest_announced <= api.min_version, f"{api.name}: announced from {api.lowest_announced}"
        if api.gated is not None:
            assert api.max_version < api.gated.max_version <= request.MAX_VERSION, f"{api.name}: gated versions"
            assert PROPERTIES[api.gated.property_name].kind is Kind.BOOLEAN, f"{api.name}: gate"
    in_quorum = [api.key for api in quorum_apis]
    of_controllers = [api.key for api in CONTROLLER_TABLE]
    for api in table:
        assert CONTROLLER not in api.listeners or api.key in of_controllers, f"{api.name}: for controllers"
        early = api.early is not never or api.routing is not Routing.LOCAL
        assert not early or api.key in in_quorum, f"{api.name}: needed before the broker is registered"


check(API_TABLE, QUORUM_APIS)
