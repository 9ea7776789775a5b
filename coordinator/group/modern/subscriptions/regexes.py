"""Evaluate the regular expressions of a group on all topic names (KIP-848).

The topic names are processed in slices, so that other requests need not wait. The matches are written after the last
slice, in one batch or more. The group epoch increases in the last batch.

While records are missing, the group has the metadata hash UNKNOWN_HASH. It protects the new epoch in this scenario:

1. A first batch adds topic t to an expression. Another expression has matched t before.
2. The coordinator fails. Its successor finds the same set of subscribed topics, so their hash is the same.
3. Without UNKNOWN_HASH, the successor starts no epoch, and no member of the first expression receives t.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from odradek.coordinator.group import commands as c
from odradek.coordinator.group.modern import records as r
from odradek.coordinator.group.modern.draft import ConsumerDraft, ResolveRegexes
from odradek.coordinator.group.modern.state import ConsumerGroup, Resolution
from odradek.coordinator.group.modern.subscriptions.metadata_hash import UNKNOWN_HASH, group_hash
from odradek.coordinator.group.offsets.records import record_bytes_max
from odradek.coordinator.group.state import State
from odradek.protocol.batch import HEADER_BYTES
from odradek.protocol.errors import Refusal
from odradek.protocol.patterns import CHARACTERS_PER_SLICE, compiled
from odradek.runtime.shard import Decision, ShardRecord

MATCHES_PER_SLICE_MAX: Final = 1_000
"""Maximum names times expressions per slice: a few milliseconds of the event loop.

CHARACTERS_PER_SLICE bounds their characters.
"""
AUTHORIZED_PER_SLICE_MAX: Final = 100
"""Maximum names times expressions per slice if each match is authorized. One takes up to 35 us."""
COMPILED_PER_SLICE: Final = 1
"""Expressions that are compiled per slice. One takes up to 7 ms."""
WRITTEN_BYTES_MAX: Final = 128 * 1024
"""Maximum bytes of records that one step writes, unless the record of one expression is larger. 128 KiB are about
10,000 topics, in a few milliseconds."""
LOGGED_CHARACTERS_MAX: Final = 200
"""Maximum characters of a regular expression in a log event."""


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
    for regex, describable in command.describable:
        draft.set_describable(regex, describable)
    regexes = tuple(group.subscriptions.regexes)
    work = group.resolution
    if work is None or work.regexes != regexes:
        work = Resolution(state.topics.version(), regexes, state.topics.names())
    if len(work.matchers) < len(regexes):
        work = _compile(work)
    elif work.position < len(work.names):
        work = _match(draft, work)
    if work.position < len(work.names) or len(work.matchers) < len(regexes):
        _continue(draft, work)
    else:
        _write(draft, work)
    return draft.decision(None)


def _continue(draft: ConsumerDraft, work: Resolution) -> None:
    draft.set_resolution(work)
    draft.start_regex_evaluation()


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
    authorizes = draft.state.configs.broker().authorizes_topics
    end = _end_of_slice(work, AUTHORIZED_PER_SLICE_MAX if authorizes else MATCHES_PER_SLICE_MAX)
    names = work.names[work.position : end]
    matched = tuple(tuple(filter(matches, names)) for matches in work.matchers)
    if authorizes:
        matched = tuple(map(partial(_describable, draft.group), work.regexes, matched))
    matched_names = dict.fromkeys(name for matches in matched for name in matches)
    group_hash(matched_names, draft.state.topics, draft.state.topic_hashes)  # fills the cache for the last slice
    return replace(work, matches=(*work.matches, matched), position=end)


def _describable(group: ConsumerGroup, regex: str, topics: tuple[str, ...]) -> tuple[str, ...]:
    """Return the topics that a member with the expression may describe.

    After a fail-over this is not known until such a member sends a heartbeat. Until then, only former matches count.
    """
    describable = group.describable.get(regex)
    if describable is not None:
        return tuple(describable(topics))
    resolved = group.resolved.get(regex)
    former = dict.fromkeys(() if resolved is None else resolved.topics)
    return tuple(topic for topic in topics if topic in former)


def _end_of_slice(work: Resolution, matches_max: int) -> int:
    """Return the position after the names of the next slice: at least one."""
    count = max(len(work.regexes), 1)
    end = min(work.position + max(matches_max // count, 1), len(work.names))
    characters = 0
    for position in range(work.position, end):
        characters += count * len(work.names[position])
        if characters > CHARACTERS_PER_SLICE:
            return max(position, work.position + 1)
    return end


def _write(draft: ConsumerDraft, work: Resolution) -> None:
    """Write the next expressions, and the new group epoch after the last one."""
    group = draft.group
    unfinished = r.group_record(group.group_id, group.epoch, UNKNOWN_HASH)
    batch_bytes = draft.state.configs.broker().record_batch_bytes_max - HEADER_BYTES - record_bytes_max(unfinished)
    step_bytes = max(0, min(WRITTEN_BYTES_MAX, batch_bytes // 2))  # each step writes at least one expression
    changes = []
    for number, regex in enumerate(work.regexes[work.written :], work.written):
        if step_bytes < 0:
            break
        old = group.resolved.get(regex)
        before = () if old is None else old.topics
        matched = tuple(sorted(name for matches in work.matches for name in matches[number]))
        topics, record = _record(draft, work, regex, (matched, before, ()), batch_bytes)
        step_bytes -= record_bytes_max(record)
        if step_bytes < 0 and draft.records:
            break
        draft.records.append(record)
        work = replace(work, written=work.written + 1)
        if topics != before:
            changes.append((before, topics))
        if topics != matched:
            draft.effects.append(_too_large(group.group_id, regex, len(matched), batch_bytes))
    if step_bytes < 0:
        if changes and group.metadata_hash != UNKNOWN_HASH:
            draft.records.append(unfinished)
        _continue(draft, work)
        return
    draft.set_resolution(None)
    counts = group.subscriptions.copy()
    for before, topics in changes:
        counts.by_regex.add_all(before, -1)
        counts.by_regex.add_all(topics, 1)
    metadata_hash = group_hash(counts.topics(), draft.state.topics, draft.state.topic_hashes)
    if changes or metadata_hash != group.metadata_hash:
        draft.records.append(r.group_record(group.group_id, group.epoch + 1, metadata_hash))
        draft.set_hash_checked(work.version, group.epoch + 1)


def _record(
    draft: ConsumerDraft, work: Resolution, regex: str, candidates: tuple[tuple[str, ...], ...], bytes_max: int
) -> tuple[tuple[str, ...], ShardRecord]:
    """Return the first of the `candidates` whose record has at most `bytes_max` bytes, and this record.

    The expression keeps its old topics if its new ones do not fit. It counts as evaluated. So the next evaluation
    starts after REGEX_INTERVAL_MS at the earliest.
    """
    for topics in candidates:
        record = r.regex_record(draft.group.group_id, regex, topics, work.version, draft.now_ms)
        if record_bytes_max(record) <= bytes_max:
            break
    return topics, record


def _too_large(group_id: str, regex: str, topics: int, bytes_max: int) -> c.Notice:
    reason = f"the record of the topics exceeds {bytes_max} bytes; use several expressions that match fewer topics"
    fields = (("group", group_id), ("regex", regex[:LOGGED_CHARACTERS_MAX]), ("topics", topics), ("reason", reason))
    return c.Notice("regular expression not resolved", fields)
