"""Update the group epoch after changes of a member's subscription, or of the subscribed topics."""

from enum import Enum
from typing import Final

from odradek.coordinator.group.modern import records as r
from odradek.coordinator.group.modern.draft import ConsumerDraft
from odradek.coordinator.group.modern.member import Member
from odradek.coordinator.group.modern.state import Subscriptions
from odradek.coordinator.group.modern.subscriptions.metadata_hash import group_hash
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.patterns import compiled

NAMES_MAX: Final = 10_000
"""Maximum different topic names that the members of a group subscribe to. Each change of a subscription visits all of
them, in about 5 ms."""
REGEXES_MAX: Final = 20
"""Maximum different regular expressions of a group. Each is evaluated on all topic names after each change."""
REGEX_INTERVAL_MS: Final = 10_000
"""Minimum time between two evaluations of a group's regular expressions, as in Kafka."""


class RegexChange(Enum):
    """Change of a member's regular expression by a heartbeat."""

    NONE = "same expression"
    NEW = "new expression, not evaluated yet"
    RESOLVED = "expression with known topics, or removed"


def write_member(draft: ConsumerDraft, before: Member, member: Member) -> bool:
    """Write a changed member. Return True if it subscribes to other topic names than before.

    Raise Refusal(COORDINATOR_NOT_AVAILABLE) if the members of all groups in the partition take too much memory, and
    Refusal(INVALID_REQUEST) if the members of the group subscribe to more than NAMES_MAX names.
    """
    if member == before:
        return False
    if member.topics != before.topics:
        _check_names(draft, before, member)
    known = draft.group.members.get(before.member_id) or draft.group.static_member(before.instance_id)
    cost = member.size - (before.size if known is not None else 0)
    if not draft.reserve(cost, is_new_member=known is None):
        raise Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The memory for group members is used up.")
    draft.records.append(r.member_record(draft.group.group_id, member))
    return member.topics != before.topics


def _check_names(draft: ConsumerDraft, before: Member, member: Member) -> None:
    known = draft.group.subscriptions.by_name
    added = sum(name not in known for name in member.topics)
    dropped = sum(known.get(name) == 1 for name in before.topics)
    if added and len(known) + added - dropped > NAMES_MAX:
        message = f"The members of a group subscribe to at most {NAMES_MAX} topic names; use a regular expression."
        raise Refusal(ErrorCode.INVALID_REQUEST, message)


def update_regex(draft: ConsumerDraft, before: Member, member: Member) -> RegexChange:
    """Start the evaluation of a new expression, and remove unused ones.

    Raise Refusal(INVALID_REGULAR_EXPRESSION), or Refusal(INVALID_REQUEST) for more than REGEXES_MAX expressions.
    """
    group = draft.group
    change, is_first = RegexChange.NONE, False
    old, new = before.regex, member.regex
    if old != new:
        change = RegexChange.NEW
        if old and group.subscriptions.regexes.get(old) == 1:
            draft.records.append(r.regex_tombstone(group.group_id, old))
        if new:
            if new not in group.subscriptions.regexes:
                if len(group.subscriptions.regexes) >= REGEXES_MAX:
                    message = f"The members of a group have at most {REGEXES_MAX} different regular expressions."
                    raise Refusal(ErrorCode.INVALID_REQUEST, message)
                _check_regex(new)
                is_first = True
            elif new in group.resolved:
                change = RegexChange.RESOLVED
        elif old:
            change = RegexChange.RESOLVED
    if is_first or group.subscriptions.regexes:
        _resolve_if_due(draft, old, new, is_first=is_first)
    return change


def _check_regex(regex: str) -> None:
    try:
        compiled(regex)
    except Refusal as refusal:
        message = f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {refusal.message}."
        raise Refusal(refusal.error, message) from refusal


def _resolve_if_due(draft: ConsumerDraft, old: str | None, new: str | None, *, is_first: bool) -> None:
    group = draft.group
    last = next(iter(group.resolved.values()), None)
    if last is not None and draft.now_ms <= last.timestamp_ms + REGEX_INTERVAL_MS:
        return
    regexes = Subscriptions(regexes=group.subscriptions.regexes).copy().regexes
    if old:
        regexes.add(old, -1)
    if new:
        regexes.add(new, 1)
    interval_ms = draft.state.configs.broker().consumer_regex_refresh_interval_ms
    due = (
        is_first
        or len(regexes) != len(group.resolved)
        or last is None
        or last.version != draft.state.topics.version()
        or draft.now_ms > last.timestamp_ms + interval_ms
    )
    if due and regexes:
        draft.start_regex_evaluation()


def update_group_epoch(draft: ConsumerDraft, before: Member, member: Member, *, bump: bool) -> int:
    """Return the group epoch.

    It increases if `bump` is set, or if the metadata of the subscribed topics has changed.
    """
    state, group = draft.state, draft.group
    version = state.topics.version()
    if not bump and group.checked[0] == version and group.epoch >= group.checked[1]:
        return group.epoch
    after = counts_after(group.subscriptions, before, member, draft)
    metadata_hash = group_hash(after.topics(), state.topics, state.topic_hashes)
    epoch = group.epoch
    if bump or metadata_hash != group.metadata_hash:
        epoch += 1
        draft.records.append(r.group_record(group.group_id, epoch, metadata_hash))
    draft.set_hash_checked(version, epoch)
    if group.has_partition_metadata:
        draft.records.append(r.partition_metadata_tombstone(group.group_id))
    return epoch


def counts_after(
    subscriptions: Subscriptions, before: Member | None, after: Member | None, draft: ConsumerDraft
) -> Subscriptions:
    """Return the counts after `before` was replaced by `after`, without expressions that no member uses."""
    counts = subscriptions.copy()
    counts.count(before, -1)
    counts.count(after, 1)
    drop_unused_regexes(counts, draft)
    return counts


def drop_unused_regexes(counts: Subscriptions, draft: ConsumerDraft) -> None:
    for regex, resolved in draft.group.resolved.items():
        if regex not in counts.regexes and regex in draft.group.subscriptions.regexes:
            counts.by_regex.add_all(resolved.topics, -1)
