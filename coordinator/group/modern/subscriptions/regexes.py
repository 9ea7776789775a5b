"""The regular expressions of a group are matched against the topics there are (KIP-848, Regular expressions).

Thousands of topics are looked at in slices, so that nobody else waits for it; what is found is written at the end.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from odradek.coordinator.group.modern import records as r
from odradek.coordinator.group.modern.draft import ConsumerDraft, ResolveRegexes
from odradek.coordinator.group.modern.state import ConsumerGroup, Resolution
from odradek.coordinator.group.modern.subscriptions.metadata_hash import group_hash
from odradek.coordinator.group.state import State
from odradek.protocol.errors import Refusal
from odradek.protocol.patterns import compiled
from odradek.runtime.shard import Decision

MATCHES_MAX: Final = 1_000
"""Names times expressions that are looked at in one go: a few milliseconds."""


def decide_resolve(state: State, command: ResolveRegexes, now_ms: int) -> Decision[Any]:
    """The next slice; nothing when the group is gone. Begins again when the expressions change meanwhile. What changes among
    the topics waits for the next time, since where they change all the time there would be no end; the version that is
    written is that of the topics that were looked at.
    """
    group = state.groups.get(command.group_id)
    if not isinstance(group, ConsumerGroup):
        return Decision(None)
    draft = ConsumerDraft(state, group, now_ms)
    regexes = tuple(group.subscriptions.regexes)
    work = group.resolution
    if work is None or work.regexes != regexes:
        work = Resolution(state.topics.version(), regexes, state.topics.names(), ((),) * len(regexes))
    work = _match(draft, work)
    if work.position < len(work.names):
        draft.set_resolution(work)
        draft.resolve_soon()
    else:
        draft.set_resolution(None)
        _write(draft, work)
    return draft.decision(None)


def _match(draft: ConsumerDraft, work: Resolution) -> Resolution:
    """Match the names of one slice."""
    end = work.position + max(MATCHES_MAX // max(len(work.regexes), 1), 1)
    names = work.names[work.position : end]
    matched = [_matching(regex, names) for regex in work.regexes]
    seen = dict.fromkeys(name for found in matched for name in found)
    group_hash(seen, draft.state.topics, draft.state.topic_hashes)  # known when all of them are asked for
    found = tuple((*before, *new) for before, new in zip(work.found, matched, strict=True))
    return replace(work, found=found, position=end)


def _matching(regex: str, names: Sequence[str]) -> tuple[str, ...]:
    try:
        matches = compiled(regex)
    except Refusal:
        return ()  # written by a broker with other limits: it matches nothing here
    return tuple(name for name in names if matches(name))


def _write(draft: ConsumerDraft, work: Resolution) -> None:
    group = draft.group
    counts = group.subscriptions.copy()
    bump = False
    for regex, names in zip(work.regexes, work.found, strict=True):
        found = tuple(sorted(names))
        old = group.resolved.get(regex)
        known = () if old is None else old.topics
        if found != known:
            bump = True
            counts.by_regex.add_all(known, -1)
            counts.by_regex.add_all(found, 1)
        draft.records.append(r.regex_record(group.group_id, regex, found, work.version, draft.now_ms))
    metadata_hash = group_hash(counts.topics(), draft.state.topics, draft.state.topic_hashes)
    if bump or metadata_hash != group.metadata_hash:
        draft.records.append(r.group_record(group.group_id, group.epoch + 1, metadata_hash))
        draft.set_checked(work.version, group.epoch + 1)
