"""Build and parse the names of files and directories of a data directory. This module is pure.

No other module builds such names from a topic name, so a topic name from a client never becomes a path unchecked.
"""

from __future__ import annotations

import re
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import uuid
    from collections.abc import Iterator

NAME_BYTES_MAX = 255
"""Maximum bytes of a file name on Linux file systems."""
TOPIC_NAME_LENGTH_MAX = 249
"""Maximum characters of a topic name, as in Kafka."""
UUID_COUNT = 2**128

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
INDEX_SUFFIXES = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
SEGMENT_SUFFIXES = (LOG_SUFFIX, *INDEX_SUFFIXES)
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
GAPS_MARK = "odradek.gaps"
"""Empty file in a partition directory: compaction, here or on the leader, has left gaps between offsets.
"""
TRUNCATION_MARK = "odradek.truncation"
"""Empty file in a partition directory: the log was truncated, and the truncation may not be durable."""
EXPIRY_TIME = "odradek.expiry"
BOOT_MARKER = "odradek.boot"
"""File in the data directory: boot id of the machine and broker epoch of the run (decision 0061)."""
DELETED_DIRECTORY_SUFFIX = "-delete"
STRAY_DIRECTORY_SUFFIX = "-stray"

OFFSET_MAX = 2**63 - 1
_TOPIC = re.compile(rf"[A-Za-z0-9._-]{{1,{TOPIC_NAME_LENGTH_MAX}}}")
_PARTITION_DIRECTORY = re.compile(r"(.+)-(0|[1-9][0-9]{0,9})")
_OFFSET_FILE = re.compile(r"([0-9]{20})(\.(?:log|index|timeindex|txnindex|snapshot))")


def parent(path: str) -> str:
    """Return the path of the directory that contains `path`."""
    return path.rpartition("/")[0]


def check_topic_name(topic: str) -> None:
    """Raise ValueError if Kafka does not allow the topic name. An allowed name is also safe as a part of a path."""
    if not _TOPIC.fullmatch(topic) or topic in {".", ".."}:
        raise ValueError(f"{topic!r} is not a valid topic name")


def partition_directory(topic: str, partition: int) -> str:
    """Return the name of the directory of a partition. Raise ValueError if the topic or the partition is not valid."""
    check_topic_name(topic)
    if not 0 <= partition < 2**31:
        raise ValueError(f"{partition} is not a valid partition number")
    return f"{topic}-{partition}"


def parse_partition_directory(name: str) -> tuple[str, int] | None:
    """Return (topic, partition) of a partition directory; None if the name is not that of one."""
    match = _PARTITION_DIRECTORY.fullmatch(name)
    if match is None or not _TOPIC.fullmatch(match[1]) or match[1] in {".", ".."} or int(match[2]) >= 2**31:
        return None
    return match[1], int(match[2])


def deleted_directory_names(topic: str, partition: int, topic_id: uuid.UUID) -> Iterator[str]:
    """Yield names for the directory of a deleted partition. The caller uses the first name that is free.

    The first name may be in use: if a replica is deleted, created and deleted again within file.delete.delay.ms, both
    directories exist.
    """
    return _unique_names(topic, partition, topic_id, DELETED_DIRECTORY_SUFFIX)


def stray_directory_names(topic: str, partition: int, topic_id: uuid.UUID) -> Iterator[str]:
    """Yield names for the directory of a stray partition: one that is not in the metadata.

    The caller uses the first name that is free.
    """
    return _unique_names(topic, partition, topic_id, STRAY_DIRECTORY_SUFFIX)


def _unique_names(topic: str, partition: int, topic_id: uuid.UUID, ending: str) -> Iterator[str]:
    """Yield names without end: topic-partition, 32 hexadecimal digits, and `ending`, as Kafka does.

    The digits are the topic id in the first name, and the next number in each later name. A long topic name is
    shortened to fit a file name.
    """
    for unique in count(topic_id.int):
        suffix = f"-{partition}.{unique % UUID_COUNT:032x}{ending}"
        yield topic[: NAME_BYTES_MAX - len(suffix)] + suffix


def offset_file(offset: int, suffix: str) -> str:
    """Return the name of a segment file or producer snapshot, such as `00000000000000000042.log`."""
    return f"{offset:020d}{suffix}"


def parse_offset_file(name: str) -> tuple[int, str] | None:
    """Return (offset, suffix) of a segment file or producer snapshot; None if the name is not that of one."""
    match = _OFFSET_FILE.fullmatch(name)
    if match is None or int(match[1]) > OFFSET_MAX:
        return None
    return int(match[1]), match[2]
