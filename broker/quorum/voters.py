"""Contact of this node with the other voters of the metadata quorum."""

from collections.abc import Sequence
from typing import Final

from odradek.broker.config.addresses import Voter
from odradek.broker.quorum.peers import Peers
from odradek.cluster.raft.progress import majority
from odradek.runtime.clock import Clock

RECENT_MS: Final = 3_000
"""Milliseconds for which a contact with a voter, or its host's refusal of a connection, counts as recent.

Three election time-outs (controller.quorum.election.timeout.ms), so a slow election does not hide a running voter.
"""


def missing_controllers(node_id: int, voters: Sequence[Voter], peers: Peers, clock: Clock) -> str:
    """Return the other voters without recent contact, as a comma-separated list of id@host:port."""
    since_ms = clock.monotonic_ms() - RECENT_MS
    return ", ".join(
        f"{voter.node_id}@{voter.host}:{voter.port}"
        for voter in voters
        if voter.node_id != node_id and peers.last_contact_ms(voter.node_id) < since_ms
    )


def without_quorum(voters: Sequence[Voter], peers: Peers, clock: Clock) -> bool:
    """Return True if too few voters run to elect a controller.

    A voter counts as stopped if its host refused a connection recently and the voter sent nothing since.
    """
    since_ms = clock.monotonic_ms() - RECENT_MS
    running = [
        voter
        for voter in voters
        if peers.last_refusal_ms(voter.node_id) <= max(since_ms, peers.last_contact_ms(voter.node_id))
    ]
    return len(running) < majority(len(voters))
