"""Names and limits that a broker process shares with the programs that start it."""

from typing import Final

META_PROPERTIES: Final = "meta.properties"
"""File of a data directory with the node id and the cluster id, as in Kafka."""
ENVIRONMENT_PREFIX: Final = "ODRADEK_"
"""Prefix of an environment variable that sets a property: ODRADEK_NUM_PARTITIONS sets num.partitions."""
PORT_MAX: Final = 65_535
"""Largest TCP port."""
