"""Tagged fields that Odradek adds to Kafka's messages. Other clients skip them as unknown."""

from __future__ import annotations

from typing import Final

DESCRIBED_CLIENT_ID_TAG: Final = 10_000
"""Tag of the client id of the producer (UTF-8) in a transaction of a DescribeTransactions response.

Kafka uses small tags.
"""
