"""Kafka's error codes, and the exceptions that all packages share.

- `Refusal`: a core refuses a request before anything is appended. The dispatcher converts it to a response.
- `Malformed`: received or stored bytes cannot be decoded.
- `Unencodable`: a message cannot be encoded in the requested version. This is a bug of the sender.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


class Malformed(ValueError):
    """The bytes cannot be decoded. The error message contains the field and its position."""


class ChargeExceeded(Exception):
    """A message needs more memory than its decoder may charge."""


class Unencodable(ValueError):
    """The message has no such version, or a field has a value that the version cannot contain."""


class ErrorCode(IntEnum):
    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133
    GROUP_DELETION_FAILED = 134
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED = 135
    CONTROLLER_ID_NOT_REGISTERED = 136


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """Properties of an error code. If it is `retriable`, the same request may succeed later."""

    code: ErrorCode
    retriable: bool
    message: str


MESSAGE_CHARACTERS_MAX: Final = 4_000
"""Maximum characters of an error message. Messages repeat text of the client, and a string has at most 32,767 bytes."""


class Refusal(Exception):
    """The request is refused with this error code. No state was changed.

    A longer message than MESSAGE_CHARACTERS_MAX is shortened.
    """

    def __init__(self, error: ErrorCode, message: str | None = None) -> None:
        if message is not None and len(message) > MESSAGE_CHARACTERS_MAX:
            message = f"{message[: MESSAGE_CHARACTERS_MAX - 3]}..."
        super().__init__(error, message)
        self.error = error
        self.message = message

    def __str__(self) -> str:
        return f"{self.error.name}: {self.message or ERRORS[self.error].message}"


_TABLE: Final = (
    ErrorRow(ErrorCode.UNKNOWN_SERVER_ERROR, False, "Unexpected error in the broker"),
    ErrorRow(ErrorCode.NONE, False, ""),
    ErrorRow(ErrorCode.OFFSET_OUT_OF_RANGE, False, "The offset is outside the range of the partition"),
    ErrorRow(ErrorCode.CORRUPT_MESSAGE, True, "The batch failed its checksum or is malformed"),
    ErrorRow(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True, "This broker does not have this topic or partition"),
    ErrorRow(ErrorCode.INVALID_FETCH_SIZE, False, "The fetch size is invalid"),
    ErrorRow(ErrorCode.LEADER_NOT_AVAILABLE, True, "The partition has no leader at the moment"),
    ErrorRow(ErrorCode.NOT_LEADER_OR_FOLLOWER, True, "This broker neither leads nor follows the partition"),
    ErrorRow(ErrorCode.REQUEST_TIMED_OUT, True, "The request timed out"),
    ErrorRow(ErrorCode.BROKER_NOT_AVAILABLE, False, "The broker cannot be reached"),
    ErrorRow(ErrorCode.REPLICA_NOT_AVAILABLE, True, "The replica of this partition is not available"),
    ErrorRow(ErrorCode.MESSAGE_TOO_LARGE, False, "The batch is larger than the topic allows"),
    ErrorRow(ErrorCode.STALE_CONTROLLER_EPOCH, False, "The request comes from a superseded controller"),
    ErrorRow(ErrorCode.OFFSET_METADATA_TOO_LARGE, False, "The offset's metadata text is too long"),
    ErrorRow(ErrorCode.NETWORK_EXCEPTION, True, "The connection closed before the response"),
    ErrorRow(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, True, "The coordinator is still loading its log"),
    ErrorRow(ErrorCode.COORDINATOR_NOT_AVAILABLE, True, "The coordinator is not available"),
    ErrorRow(ErrorCode.NOT_COORDINATOR, True, "This broker is not the coordinator of this key"),
    ErrorRow(ErrorCode.INVALID_TOPIC_EXCEPTION, False, "The topic name is invalid, or the topic cannot be written"),
    ErrorRow(ErrorCode.RECORD_LIST_TOO_LARGE, False, "The append is larger than a segment"),
    ErrorRow(ErrorCode.NOT_ENOUGH_REPLICAS, True, "There are fewer in-sync replicas than min.insync.replicas requires"),
    ErrorRow(
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        True,
        "The records were appended, but there are too few in-sync replicas",
    ),
    ErrorRow(ErrorCode.INVALID_REQUIRED_ACKS, False, "acks must be -1, 0 or 1"),
    ErrorRow(ErrorCode.ILLEGAL_GENERATION, False, "The group's generation is not the current one"),
    ErrorRow(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, False, "The member's protocols do not match those of the group"),
    ErrorRow(ErrorCode.INVALID_GROUP_ID, False, "The group id is not valid"),
    ErrorRow(ErrorCode.UNKNOWN_MEMBER_ID, False, "The group has no such member"),
    ErrorRow(ErrorCode.INVALID_SESSION_TIMEOUT, False, "The session time-out is outside the broker's bounds"),
    ErrorRow(ErrorCode.REBALANCE_IN_PROGRESS, False, "The group is rebalancing; the member must rejoin"),
    ErrorRow(ErrorCode.INVALID_COMMIT_OFFSET_SIZE, False, "The offset commit is too large"),
    ErrorRow(ErrorCode.TOPIC_AUTHORIZATION_FAILED, False, "Not authorized for the topic"),
    ErrorRow(ErrorCode.GROUP_AUTHORIZATION_FAILED, False, "Not authorized for the group"),
    ErrorRow(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, False, "Not authorized for the cluster"),
    ErrorRow(ErrorCode.INVALID_TIMESTAMP, False, "A record's timestamp is outside the allowed range"),
    ErrorRow(ErrorCode.UNSUPPORTED_SASL_MECHANISM, False, "The SASL mechanism is not enabled"),
    ErrorRow(ErrorCode.ILLEGAL_SASL_STATE, False, "The request is invalid in this state of authentication"),
    ErrorRow(ErrorCode.UNSUPPORTED_VERSION, False, "The version of the API is not supported"),
    ErrorRow(ErrorCode.TOPIC_ALREADY_EXISTS, False, "The topic exists already"),
    ErrorRow(ErrorCode.INVALID_PARTITIONS, False, "The number of partitions is not allowed"),
    ErrorRow(ErrorCode.INVALID_REPLICATION_FACTOR, False, "The replication factor is invalid"),
    ErrorRow(ErrorCode.INVALID_REPLICA_ASSIGNMENT, False, "The replica assignment is invalid"),
    ErrorRow(ErrorCode.INVALID_CONFIG, False, "A configuration value is invalid"),
    ErrorRow(ErrorCode.NOT_CONTROLLER, True, "This node is not the active controller"),
    ErrorRow(ErrorCode.INVALID_REQUEST, False, "The request violates the protocol"),
    ErrorRow(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, False, "The record format of the log does not support this"),
    ErrorRow(ErrorCode.POLICY_VIOLATION, False, "A policy of this cluster forbids the request"),
    ErrorRow(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, False, "The batch's sequence does not follow the producer's last batch"
    ),
    ErrorRow(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, False, "The batch is a duplicate"),
    ErrorRow(ErrorCode.INVALID_PRODUCER_EPOCH, False, "The producer's epoch is older than the current one"),
    ErrorRow(ErrorCode.INVALID_TXN_STATE, False, "The transaction's state does not allow this"),
    ErrorRow(ErrorCode.INVALID_PRODUCER_ID_MAPPING, False, "The producer id does not belong to the transactional id"),
    ErrorRow(
        ErrorCode.INVALID_TRANSACTION_TIMEOUT,
        False,
        "The transaction time-out is above transaction.max.timeout.ms or not positive",
    ),
    ErrorRow(ErrorCode.CONCURRENT_TRANSACTIONS, True, "Another operation on this transactional id is in progress"),
    ErrorRow(ErrorCode.TRANSACTION_COORDINATOR_FENCED, False, "A newer transaction coordinator exists"),
    ErrorRow(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, False, "Not authorized for the transactional id"),
    ErrorRow(ErrorCode.SECURITY_DISABLED, False, "No authorizer is configured"),
    ErrorRow(ErrorCode.OPERATION_NOT_ATTEMPTED, False, "Not attempted, because another part of the request failed"),
    ErrorRow(ErrorCode.KAFKA_STORAGE_ERROR, True, "The disk of this partition failed"),
    ErrorRow(ErrorCode.LOG_DIR_NOT_FOUND, False, "The broker has no such log directory"),
    ErrorRow(ErrorCode.SASL_AUTHENTICATION_FAILED, False, "Authentication failed"),
    ErrorRow(ErrorCode.UNKNOWN_PRODUCER_ID, False, "The producer id is unknown, or has expired"),
    ErrorRow(ErrorCode.REASSIGNMENT_IN_PROGRESS, False, "The partition is being reassigned"),
    ErrorRow(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, False, "Delegation tokens are disabled"),
    ErrorRow(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, False, "No such delegation token"),
    ErrorRow(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, False, "The principal may not act on this delegation token"),
    ErrorRow(
        ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        False,
        "Delegation tokens cannot be requested over this kind of connection",
    ),
    ErrorRow(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED, False, "Not authorized for the delegation token"),
    ErrorRow(ErrorCode.DELEGATION_TOKEN_EXPIRED, False, "The delegation token has expired"),
    ErrorRow(ErrorCode.INVALID_PRINCIPAL_TYPE, False, "The principal's type is not supported"),
    ErrorRow(ErrorCode.NON_EMPTY_GROUP, False, "The group still has members"),
    ErrorRow(ErrorCode.GROUP_ID_NOT_FOUND, False, "No such group"),
    ErrorRow(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, True, "The fetch session does not exist"),
    ErrorRow(ErrorCode.INVALID_FETCH_SESSION_EPOCH, True, "The fetch session's epoch is not the expected one"),
    ErrorRow(ErrorCode.LISTENER_NOT_FOUND, True, "The leader has no listener of that name"),
    ErrorRow(ErrorCode.TOPIC_DELETION_DISABLED, False, "Topics cannot be deleted on this cluster"),
    ErrorRow(ErrorCode.FENCED_LEADER_EPOCH, True, "The leader epoch in the request is older than the broker's"),
    ErrorRow(ErrorCode.UNKNOWN_LEADER_EPOCH, True, "The leader epoch in the request is newer than the broker's"),
    ErrorRow(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, False, "This version of the API does not allow the compression"),
    ErrorRow(ErrorCode.STALE_BROKER_EPOCH, False, "The broker has a newer registration"),
    ErrorRow(ErrorCode.OFFSET_NOT_AVAILABLE, True, "The new leader's high watermark has not caught up yet"),
    ErrorRow(ErrorCode.MEMBER_ID_REQUIRED, False, "The member must join again with the assigned member id"),
    ErrorRow(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, True, "The preferred leader is not available"),
    ErrorRow(ErrorCode.GROUP_MAX_SIZE_REACHED, False, "The group is full"),
    ErrorRow(ErrorCode.FENCED_INSTANCE_ID, False, "Another member has taken over this group instance id"),
    ErrorRow(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, True, "No eligible leader is available"),
    ErrorRow(ErrorCode.ELECTION_NOT_NEEDED, True, "The partition already has the requested leader"),
    ErrorRow(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, False, "The partition is not being reassigned"),
    ErrorRow(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, False, "The group is subscribed to this topic"),
    ErrorRow(ErrorCode.INVALID_RECORD, False, "A record is invalid"),
    ErrorRow(ErrorCode.UNSTABLE_OFFSET_COMMIT, True, "Offsets of an open transaction are pending"),
    ErrorRow(ErrorCode.THROTTLING_QUOTA_EXCEEDED, True, "The quota is exhausted"),
    ErrorRow(ErrorCode.PRODUCER_FENCED, False, "A newer producer uses this transactional id"),
    ErrorRow(ErrorCode.RESOURCE_NOT_FOUND, False, "No such resource"),
    ErrorRow(ErrorCode.DUPLICATE_RESOURCE, False, "The resource exists already"),
    ErrorRow(ErrorCode.UNACCEPTABLE_CREDENTIAL, False, "The credential does not meet the requirements"),
    ErrorRow(ErrorCode.INCONSISTENT_VOTER_SET, False, "The voter sets are different"),
    ErrorRow(ErrorCode.INVALID_UPDATE_VERSION, False, "The version in the update is invalid"),
    ErrorRow(ErrorCode.FEATURE_UPDATE_FAILED, False, "A feature could not be updated"),
    ErrorRow(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, False, "The forwarded principal cannot be decoded"),
    ErrorRow(ErrorCode.SNAPSHOT_NOT_FOUND, False, "No such snapshot"),
    ErrorRow(ErrorCode.POSITION_OUT_OF_RANGE, False, "The position is outside the snapshot"),
    ErrorRow(ErrorCode.UNKNOWN_TOPIC_ID, True, "No topic with this id"),
    ErrorRow(ErrorCode.DUPLICATE_BROKER_REGISTRATION, False, "A broker with this id is registered already"),
    ErrorRow(ErrorCode.BROKER_ID_NOT_REGISTERED, False, "No broker with this id is registered"),
    ErrorRow(ErrorCode.INCONSISTENT_TOPIC_ID, True, "The topic id differs from the one in the log"),
    ErrorRow(ErrorCode.INCONSISTENT_CLUSTER_ID, False, "The cluster ids are different"),
    ErrorRow(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, False, "No such transactional id"),
    ErrorRow(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, True, "The fetch session mixes topic names and topic ids"),
    ErrorRow(ErrorCode.INELIGIBLE_REPLICA, False, "The replica may not join the ISR"),
    ErrorRow(ErrorCode.NEW_LEADER_ELECTED, False, "The request caused the election of another leader"),
    ErrorRow(ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE, False, "The offset is in tiered storage"),
    ErrorRow(ErrorCode.FENCED_MEMBER_EPOCH, False, "The member's epoch was fenced by the group coordinator"),
    ErrorRow(ErrorCode.UNRELEASED_INSTANCE_ID, False, "Another member still uses this group instance id"),
    ErrorRow(ErrorCode.UNSUPPORTED_ASSIGNOR, False, "The assignor is not supported by the group"),
    ErrorRow(ErrorCode.STALE_MEMBER_EPOCH, False, "The member's epoch is older than the current one"),
    ErrorRow(ErrorCode.MISMATCHED_ENDPOINT_TYPE, False, "The endpoint has the wrong type for this request"),
    ErrorRow(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, False, "The endpoint type is not supported"),
    ErrorRow(ErrorCode.UNKNOWN_CONTROLLER_ID, False, "No controller with this id"),
    ErrorRow(ErrorCode.UNKNOWN_SUBSCRIPTION_ID, False, "The telemetry subscription is not current"),
    ErrorRow(ErrorCode.TELEMETRY_TOO_LARGE, False, "The pushed telemetry is too large"),
    ErrorRow(ErrorCode.INVALID_REGISTRATION, False, "The registration is not valid"),
    ErrorRow(ErrorCode.TRANSACTION_ABORTABLE, False, "The transaction failed and must be aborted by the client"),
    ErrorRow(ErrorCode.INVALID_RECORD_STATE, False, "The record's state does not allow this acknowledgment"),
    ErrorRow(ErrorCode.SHARE_SESSION_NOT_FOUND, True, "No such share session"),
    ErrorRow(ErrorCode.INVALID_SHARE_SESSION_EPOCH, True, "The share session's epoch is not the expected one"),
    ErrorRow(ErrorCode.FENCED_STATE_EPOCH, False, "The state epoch is older than the coordinator's"),
    ErrorRow(ErrorCode.INVALID_VOTER_KEY, False, "The voter key does not match this replica"),
    ErrorRow(ErrorCode.DUPLICATE_VOTER, False, "The voter is already in the voter set"),
    ErrorRow(ErrorCode.VOTER_NOT_FOUND, False, "The voter is not in the voter set"),
    ErrorRow(ErrorCode.INVALID_REGULAR_EXPRESSION, False, "The regular expression is not valid"),
    ErrorRow(ErrorCode.REBOOTSTRAP_REQUIRED, False, "The client must bootstrap again"),
    ErrorRow(ErrorCode.STREAMS_INVALID_TOPOLOGY, False, "The topology is not valid"),
    ErrorRow(ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH, False, "The topology's epoch is not valid"),
    ErrorRow(ErrorCode.STREAMS_TOPOLOGY_FENCED, False, "The topology's epoch is out of date"),
    ErrorRow(ErrorCode.SHARE_SESSION_LIMIT_REACHED, True, "The number of share sessions has reached its limit"),
    ErrorRow(ErrorCode.GROUP_DELETION_FAILED, False, "The group could not be deleted"),
    ErrorRow(
        ErrorCode.STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED, False, "The topology description could not be stored"
    ),
    ErrorRow(ErrorCode.CONTROLLER_ID_NOT_REGISTERED, False, "No controller with this id is registered"),
)
ERRORS: Final[Mapping[ErrorCode, ErrorRow]] = {row.code: row for row in _TABLE}
assert len(ERRORS) == len(ErrorCode)
