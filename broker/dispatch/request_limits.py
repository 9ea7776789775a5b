"""Limits of one request by API: the size of its frame, and the memory of the elements that are decoded from it."""

from collections.abc import Sequence
from typing import Final

from odradek.broker.config.properties import Config
from odradek.broker.dispatch.table import EARLY_TABLE
from odradek.broker.requests.listener import BROKER, LOGIN
from odradek.protocol.messages.alter_configs import AlterConfigsRequest
from odradek.protocol.messages.alter_partition import AlterPartitionRequest
from odradek.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from odradek.protocol.messages.create_partitions import CreatePartitionsRequest
from odradek.protocol.messages.create_topics import CreateTopicsRequest
from odradek.protocol.messages.delete_records import DeleteRecordsRequest
from odradek.protocol.messages.describe_configs import DescribeConfigsRequest
from odradek.protocol.messages.elect_leaders import ElectLeadersRequest
from odradek.protocol.messages.envelope import EnvelopeRequest
from odradek.protocol.messages.fetch import FetchRequest
from odradek.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from odradek.protocol.messages.list_offsets import ListOffsetsRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.offset_commit import OffsetCommitRequest
from odradek.protocol.messages.offset_fetch import OffsetFetchRequest
from odradek.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from odradek.protocol.messages.produce import ProduceRequest
from odradek.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from odradek.protocol.messages.sasl_handshake import SaslHandshakeRequest
from odradek.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from odradek.protocol.messages.write_txn_markers import WriteTxnMarkersRequest

CHARGE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Maximum bytes of one request about partitions: its frame and its decoded elements. 100,000 partitions take at most 40
MiB. The frames of LARGE_FRAME_APIS are not included, since socket.request.max.bytes may permit larger ones."""
SMALL_CHARGE_BYTES_MAX: Final = 4 * 1024 * 1024
"""Maximum bytes of the decoded elements of one request of any other API. 10,000 groups take at most 3 MiB."""
PARTITION_APIS: Final = frozenset(
    request.API_KEY
    for request in (
        ProduceRequest,
        FetchRequest,
        ListOffsetsRequest,
        MetadataRequest,
        OffsetCommitRequest,
        OffsetFetchRequest,
        CreateTopicsRequest,
        DeleteRecordsRequest,
        OffsetForLeaderEpochRequest,
        WriteTxnMarkersRequest,
        TxnOffsetCommitRequest,
        DescribeConfigsRequest,
        AlterConfigsRequest,
        CreatePartitionsRequest,
        ElectLeadersRequest,
        IncrementalAlterConfigsRequest,
        AlterPartitionReassignmentsRequest,
        AlterPartitionRequest,
    )
)
LARGE_FRAME_APIS: Final = frozenset(
    request.API_KEY
    for request in (
        ProduceRequest,
        WriteTxnMarkersRequest,
        AlterPartitionRequest,
        EnvelopeRequest,
    )
)
"""APIs with records or from brokers: socket.request.max.bytes limits their frames, not odradek.request.max.bytes."""

OPERATOR_MARKERS_BYTES_MAX: Final = 128 * 1024
"""Maximum bytes of a WriteTxnMarkers request on a listener for clients alone. Such a request may have 100 partitions;
with the longest names of topics and client id they take 58 KiB."""

SASL_APIS: Final = frozenset((SaslHandshakeRequest.API_KEY, SaslAuthenticateRequest.API_KEY))
"""APIs for connections that have not authenticated. sasl.server.max.receive.size limits their frames."""
_ROLES: Final = {api.key: api.listeners for api in EARLY_TABLE}
"""Roles of listeners by the key of the API that they serve."""


def charge_bytes_max(api_key: int, frame_bytes: int) -> int:
    """Return the maximum bytes of the decoded elements of a request whose frame has `frame_bytes` bytes."""
    if api_key in LARGE_FRAME_APIS:
        frame_bytes = 0
    limit = CHARGE_BYTES_MAX if api_key in PARTITION_APIS else SMALL_CHARGE_BYTES_MAX
    return max(0, min(limit, CHARGE_BYTES_MAX - frame_bytes))


def frame_bytes_max(config: Config, roles: Sequence[str], api_key: int) -> int:
    """Return the maximum size of a request with this API key, in bytes. `roles`: those of its connection now."""
    is_served = any(role in roles for role in _ROLES.get(api_key, ()))
    awaits_login = tuple(roles) == (LOGIN,)
    if api_key in SASL_APIS or awaits_login or not is_served:  # a frame that is not served closes the connection
        return min(config.sasl_server_max_receive_size, config.socket_request_max_bytes)
    if api_key == WriteTxnMarkersRequest.API_KEY and BROKER not in roles:
        return min(OPERATOR_MARKERS_BYTES_MAX, config.socket_request_max_bytes)
    if api_key in LARGE_FRAME_APIS:
        return config.socket_request_max_bytes
    return min(config.odradek_request_max_bytes, config.socket_request_max_bytes)
