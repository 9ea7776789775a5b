"""The offsets of the groups of one partition of `__consumer_offsets`: committed ones, and those of open transactions."""


class OffsetStore:
    """Offsets by (group, topic, partition)."""
