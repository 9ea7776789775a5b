"""Names and limits that a broker process shares with the programs that start it."""

from typing import Final

META_PROPERTIES: Final = "meta.properties"
"""File of a data directory with the node id and the cluster id, as in Kafka."""
ENVIRONMENT_PREFIX: Final = "ODRADEK_"
"""Prefix of an environment variable that sets a property: ODRADEK_NUM_PARTITIONS sets num.partitions."""
STOP_PROGRESS_NAME: Final = "stopping "
"""Prefix of the process name of a stopping broker. The number of completed steps of its stop follows.

The kernel keeps at most 15 bytes of a process name, so the number has at most 6 digits.
"""
STOP_STEPS_MAX: Final = 999_999
"""Largest number of steps in a process name. A broker counts no further, and shows no progress from there on."""
ROTATED_SUFFIX: Final = ".1"
"""Suffix of the log file that a broker has replaced by a new one."""
PORT_MAX: Final = 65_535
"""Largest TCP port."""

OTHER_NAMES: Final = {"broker.id": "node.id", "log.dir": "log.dirs"}
"""Properties with two names in Kafka: the name that Odradek does not use, and the one that it uses.

If a file has both, the latter takes precedence.
"""


def variable_name(name: str) -> str:
    """Return the environment variable of a property.

    log.segment.bytes is ODRADEK_LOG_SEGMENT_BYTES, odradek.cluster.id is ODRADEK_CLUSTER_ID.
    """
    return ENVIRONMENT_PREFIX + name.removeprefix("odradek.").replace(".", "_").upper()
