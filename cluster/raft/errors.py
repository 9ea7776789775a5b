"""Errors of the raft core. After `LostCommitted` and `DifferentVoters` the node must stop."""


class NotLeader(Exception):
    """This replica is not the leader and cannot append."""


class LostCommitted(Exception):
    """The leader lacks entries that this replica knows to be committed: a majority of the voters has lost its data."""


class DifferentVoters(Exception):
    """Nodes of one cluster are configured with different voters."""
