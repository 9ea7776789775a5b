"""Evaluate the regular expressions of a group on all topic names (KIP-848).

The topic names are processed in slices, so that other requests need not wait. The matches are written after the last
slice.
"""

from collections.abc import Callable
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

MATCHES_PER_SLICE_MAX: Final = 1_000
"""Maximum names times expressions per slice: a few milliseconds of the event loop."""
COMPILED_PER_SLICE: Final = 1
"""Expressions that are compiled per slice. One takes up to 7 ms."""


def decide_resolve(state: State, command: ResolveRegexes, now_ms: int) -> Decision[Any]:
    """Process the next slice. Do nothing if the group no longer exists.

    If the expressions change, the evaluation starts again. If topics change, it continues with the old names, because
    it might never end otherwise. The record contains the metadata version of these names, so that the next evaluation
    follows.
    """
    group = state.groups.get(command.group_id)
    if not isinstance(group, ConsumerGroup):
        return Decision(None)
    draft = ConsumerDraft(state, group, now_ms)
    regexes = tuple(group.subscriptions.regexes)
    work = group.resolution
    if work is None or work.regexes != regexes:
        work = Resolution(state.topics.version(), regexes, state.topics.names(), ((),) * len(regexes))
    work = _match(draft, work) if len(work.matchers) == len(regexes) else _compile(work)
    if work.position < len(work.names) or len(work.matchers) < len(regexes):
        draft.set_resolution(work)
        draft.start_regex_evaluation()
    else:
        draft.set_resolution(None)
        _write(draft, work)
    return draft.decision(None)


def _compile(work: Resolution) -> Resolution:
    """Compile the next expressions."""
    first = len(work.matchers)
    return replace(work, matchers=(*work.matchers, *map(_matcher, work.regexes[first : first + COMPILED_PER_SLICE])))


def _matcher(regex: str) -> Callable[[str], bool]:
    try:
        return compiled(regex)
    except Refusal:
        return never  # written by a broker with other limits for expressions


def never(_name: str) -> bool:
    """Match no name."""
    return False


def _match(draft: ConsumerDraft, work: Resolution) -> Resolution:
    """Evaluate all expressions on the names of one slice."""
    end = work.position + max(MATCHES_PER_SLICE_MAX // max(len(work.regexes), 1), 1)
    names = work.names[work.position : end]
    matched = [tuple(filter(matches, names)) for matches in work.matchers]
    matched_names = dict.fromkeys(name for matches in matched for name in matches)
    group_hash(matched_names, draft.state.topics, draft.state.topic_hashes)  # fills the cache for the last slice
    matches = tuple((*before, *new) for before, new in zip(work.matches, matched, strict=True))
    return replace(work, matches=matches, position=end)


def _write(draft: ConsumerDraft, work: Resolution) -> None:
    group = draft.group
    counts = group.subscriptions.copy()
    bump = False
    for regex, names in zip(work.regexes, work.matches, strict=True):
        topics = tuple(sorted(names))
        old = group.resolved.get(regex)
        old_topics = () if old is None else old.topics
        if topics != old_topics:
            bump = True
            counts.by_regex.add_all(old_topics, -1)
            counts.by_regex.add_all(topics, 1)
        draft.records.append(r.regex_record(group.group_id, regex, topics, work.version, draft.now_ms))
    metadata_hash = group_hash(counts.topics(), draft.state.topics, draft.state.topic_hashes)
    if bump or metadata_hash != group.metadata_hash:
        draft.records.append(r.group_record(group.group_id, group.epoch + 1, metadata_hash))
        draft.set_hash_checked(work.version, group.epoch + 1)
