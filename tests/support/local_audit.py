"""The audit in this process, without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.client import TopicPartition
from odradek.pipeline.audit.judge import judge
from odradek.pipeline.audit.judgment import Context, Judgment
from odradek.protocol.internal_topics import CLUSTER_METADATA, TRANSACTION_STATE

if TYPE_CHECKING:
    from odradek.client.consumer.transitions import Transition
    from odradek.pipeline.audit.evidence import Event
    from odradek.pipeline.audit.sources import Source


def judgments(source: Source) -> list[Judgment]:
    """Judge all transactional ids, and all producers without one."""
    scanned = [source.scan(each) for each in source.partitions() if each["topic"] != CLUSTER_METADATA]
    states = {log.partition: log for _, log in scanned if log.topic == TRANSACTION_STATE}
    data = {TopicPartition(log.topic, log.partition): log for _, log in scanned if log.topic != TRANSACTION_STATE}
    context = Context(data, states, state_is_whole=all(log.is_whole for log in states.values()))
    transitions: dict[str, list[Transition]] = {}
    owners: dict[int, str] = {}
    for scan, _ in scanned:
        for transition in scan.transitions:
            transitions.setdefault(transition.transactional_id, []).append(transition)
            owners |= dict.fromkeys((transition.producer_id, transition.next_producer_id), transition.transactional_id)
    events: dict[str | int, list[Event]] = {}
    for scan, _ in scanned:
        for event in scan.events:
            events.setdefault(owners.get(event.producer_id, event.producer_id), []).append(event)
    known = [judge(each, rows, events.get(each, []), context) for each, rows in transitions.items()]
    unknown = [judge("", [], rows, context) for owner, rows in events.items() if isinstance(owner, int)]
    return known + unknown
