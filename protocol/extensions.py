"""Tagged fields that Odradek adds to Kafka's messages. Other clients and brokers skip them as unknown.

Kafka uses small tags. A field is UTF-8 text, or a sequence of big-endian numbers without a length.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

DESCRIBED_CLIENT_ID_TAG: Final = 10_000
"""Tag of the client id of the producer in a transaction of a DescribeTransactions response, or in a producer of a
DescribeProducers response.
"""
DESCRIBED_ADDRESS_TAG: Final = 10_001
"""Tag of the address of the client that has added the transactional id, or the producer, in the same responses."""
DESCRIBED_IDLE_TAG: Final = 10_002
"""Tag of the milliseconds since the last use (`IDLE`) of the transactional id, or of the producer, in these responses.
"""
EXPIRE_TAG: Final = 10_003
"""Tag of the request to remove what is described.

In a DescribeTransactions request: one `EXPIRED_ID` per transactional id, in the order of the ids. In the only topic of
a DescribeProducers request: the `EXPIRED_PRODUCER` entries of its only partition. In a response: the broker has removed
what it describes without an error; for producers, their number (`COUNT`).
"""
LISTED_PARTITIONS_TAG: Final = 10_004
"""Tag of the partitions of `__transaction_state` whose transactions a ListTransactions response lists: one
`PARTITION` each. It is in the response if it is in the request, without content.
"""
EXPLAINED_TAG: Final = 10_005
"""Tag of the request to explain a decision, in a DescribeAcls request, without content.

The filter names the principal, the host, the operation and the resource. In the response: a byte, which is 1 if the
operation is allowed, and the text of the deciding rule. The response has the deciding ACL alone.
"""
IDLE: Final = Struct(">q")
COUNT: Final = Struct(">i")
EXPIRED_ID: Final = Struct(">qh")
"""Producer id and producer epoch."""
PARTITION: Final = Struct(">i")
EXPIRED_PRODUCER: Final = Struct(">qhi")
"""Producer id, producer epoch and last sequence number."""
