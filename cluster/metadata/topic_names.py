"""Names of topics: validation, and the internal topics."""

import re
from typing import Final

from odradek.protocol.internal_topics import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE

INTERNAL_TOPICS: Final = (CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE)
"""Topics of coordinators.

The hash of an id and the number of partitions select the coordinator of the id, and the partition of its state.
"""
NAME_LENGTH_MAX: Final = 249
_NAME: Final = re.compile(rf"[a-zA-Z0-9._-]{{1,{NAME_LENGTH_MAX}}}")


def is_internal(name: str) -> bool:
    return name in INTERNAL_TOPICS


def is_valid(name: str) -> bool:
    """Return True if the name is valid for a topic. A valid name is also safe as a part of a file name."""
    return name not in {".", ".."} and _NAME.fullmatch(name) is not None


def collision_key(name: str) -> str:
    """Return the name with '.' as '_', as metric names have it. Two topics must not have the same key."""
    return name.replace(".", "_")


def shown(name: str) -> str:
    """Return `name` for an error message. A name that is too long for a topic is shortened.

    Each partition of such a name can have a message of its own.
    """
    return name if len(name) <= NAME_LENGTH_MAX else f"{name[:NAME_LENGTH_MAX]}..."
