"""Names of files and directories, made and understood here only: nothing that a client sends becomes a path unchecked. Pure."""

from __future__ import annotations

import re
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import uuid
    from collections.abc import Iterator

NAME_BYTES_MAX = 255
TOPIC_NAME_LENGTH_MAX = 249
UUIDS = 2**128

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
SEGMENT_SUFFIXES = (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
GAPS_MARK = "odradek.gaps"
"""An empty file in a partition directory: compaction, on this broker or the leader, has left gaps between the offsets."""
TRUNCATION_MARK = "odradek.truncation"
"""An empty file in a partition directory: the log was truncated and the truncation may not be durable."""
DELETED_DIRECTORY_SUFFIX = "-delete"
STRAY_DIRECTORY_SUFFIX = "-stray"


def parent(path: str) -> str:
    """The directory that a path lies in."""
    return path.rpartition("/")[0]


OFFSET_MAX = 2**63 - 1
_TOPIC = re.compile(rf"[A-Za-z0-9._-]{{1,{TOPIC_NAME_LENGTH_MAX}}}")
_PARTITION_DIRECTORY = re.compile(r"(.+)-(0|[1-9][0-9]{0,9})")
_OFFSET_FILE = re.compile(r"([0-9]{20})(\.(?:log|index|timeindex|txnindex|snapshot))")


def check_topic_name(topic: str) -> None:
    """Raises ValueError unless the name is one that Kafka allows and that is safe as a part of a path."""
    if not _TOPIC.fullmatch(topic) or topic in {".", ".."}:
        raise ValueError(f"{topic!r} is not a topic name")


def partition_directory(topic: str, partition: int) -> str:
    check_topic_name(topic)
    if not 0 <= partition < 2**31:
        raise ValueError(f"{partition} is not a partition number")
    return f"{topic}-{partition}"


def parse_partition_directory(name: str) -> tuple[str, int] | None:
    """(topic, partition), or None for a name that is not a partition's."""
    match = _PARTITION_DIRECTORY.fullmatch(name)
    if match is None or not _TOPIC.fullmatch(match[1]) or match[1] in {".", ".."} or int(match[2]) >= 2**31:
        return None
    return match[1], int(match[2])


def deleted_directories(topic: str, partition: int, topic_id: uuid.UUID) -> Iterator[str]:
    """Names for a deleted partition's directory; the first that is free is to be taken.

    A replica that goes, comes back and goes again finds its earlier directories still there, for file.delete.delay.ms.
    """
    return _set_aside(topic, partition, topic_id, DELETED_DIRECTORY_SUFFIX)


def stray_directories(topic: str, partition: int, topic_id: uuid.UUID) -> Iterator[str]:
    """Names for the directory of a partition that the metadata does not know and whose name another topic has now."""
    return _set_aside(topic, partition, topic_id, STRAY_DIRECTORY_SUFFIX)


def _set_aside(topic: str, partition: int, topic_id: uuid.UUID, ending: str) -> Iterator[str]:
    """Without end. As Kafka's, topic-partition.32 hex digits and the ending; a long topic name is cut so that the whole fits
    a file name. The digits are the topic's id, which says whose records these were, and count on from there.
    """
    for unique in count(topic_id.int):
        suffix = f"-{partition}.{unique % UUIDS:032x}{ending}"
        yield topic[: NAME_BYTES_MAX - len(suffix)] + suffix


def offset_file(offset: int, suffix: str) -> str:
    return f"{offset:020d}{suffix}"


def parse_offset_file(name: str) -> tuple[int, str] | None:
    """(offset, suffix) of a segment's or snapshot's file, or None."""
    match = _OFFSET_FILE.fullmatch(name)
    if match is None or int(match[1]) > OFFSET_MAX:
        return None
    return int(match[1]), match[2]
