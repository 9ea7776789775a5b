"""Model of one classic group: state, timers and rebalances. Its requests are in classic_model.py.

The model follows KIP-62, 134, 345, 394 and 814 and shares no code with the core. It uses dicts and lists, keeps no
counters, and stores every timer as a due time.

Responses are tuples. JoinGroup: (error, member id) or (error, member id, generation, protocol, leader, members, skip).
SyncGroup: (error, assignment). `responses` maps a waiter to the response that the model sent to it.
"""

from __future__ import annotations

import copy
from typing import Any

Response = tuple[Any, ...]
NEW_MEMBER_MS = 300_000
REFUSED = "refused by the log"
TIMER_RETRY_MS = 500


class Phases:
    """State, timers and rebalances of one classic group."""

    def __init__(self, delay_ms: int, size: int, now_ms: int) -> None:
        self.delay_ms, self.size, self.now_ms = delay_ms, size, now_ms
        self.generated_ids = 0
        self.responses: dict[int, Response] = {}
        self.log: dict[str, Any] | None = None
        self.refuses = False
        self.forget()

    def forget(self) -> None:
        self.state, self.before = "Dead", "Dead"
        self.generation, self.type = 0, ""
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: list[dict[str, Any]] = []
        self.pending: list[str] = []
        self.unsynced: list[str] = []
        self.new_member_joined = False
        self.timers: dict[str, tuple[int, Any]] = {}
        self.wrote = ""

    # ---- operations -------------------------------------------------------------------------------------------------

    def step(self, operation: str, *args: Any) -> Any:
        """Run one request or timer.

        If the log refuses the append, restore the state; for an empty group, only timers and responses.
        """
        saved = copy.deepcopy(
            {name: value for name, value in vars(self).items() if name not in {"generated_ids", "log"}}
        )
        self.wrote = ""
        result = getattr(self, operation)(*args)
        if self.wrote and self.refuses:
            keep = {"responses", "timers"} if self.wrote == "empty" else set(saved)
            for name in keep:
                setattr(self, name, saved[name])
            self.wrote = ""
            return REFUSED
        if self.wrote:
            self.log = self.group_record()
        return result

    def group_record(self) -> dict[str, Any]:
        fresh = self.wrote == "made"
        return {
            "generation": 0 if fresh else self.generation,
            "type": "" if fresh else self.type,
            "protocol": None if fresh else self.protocol,
            "leader": None if fresh else self.leader,
            "members": []
            if fresh
            else [
                {**member, "protocols": [pair for pair in member["protocols"] if pair[0] == self.protocol]}
                | {"joining": None, "syncing": None, "new": False}
                for member in copy.deepcopy(self.members)
            ],
        }

    def wait(self, ms: int) -> None:
        until = self.now_ms + ms
        while True:
            due = min(((when, key) for key, (when, _) in self.timers.items()), default=(until + 1, ""))
            if due[0] > until:
                break
            self.now_ms = max(self.now_ms, due[0])
            _, operation = self.timers.pop(due[1])
            if self.step(*operation) == REFUSED:
                self.timers.setdefault(due[1], (self.now_ms + TIMER_RETRY_MS, operation))
        self.now_ms = until

    def crash(self) -> None:
        log = copy.deepcopy(self.log)
        self.forget()
        if log is None:
            return
        self.generation, self.type, self.protocol = log["generation"], log["type"], log["protocol"]
        self.leader, self.members = log["leader"], log["members"]
        self.state = "Stable" if self.members else "Empty"
        for member in self.members:
            self.restart_session_timer(member)
        if len(self.members) > self.size:
            self.rebalance()

    # ---- members ----------------------------------------------------------------------------------------------------

    def find(self, member_id: str) -> dict[str, Any] | None:
        return next((member for member in self.members if member["id"] == member_id), None)

    def owner(self, instance: str | None) -> dict[str, Any] | None:
        return next(
            (member for member in self.members if instance is not None and member["instance"] == instance), None
        )

    def identity_error(self, member_id: str, instance: str | None) -> str:
        """Return the error for a request with these ids, or "" if the member exists."""
        if instance is not None:
            owner = self.owner(instance)
            if owner is None:
                return "UNKNOWN_MEMBER_ID"
            if owner["id"] != member_id:
                return "FENCED_INSTANCE_ID"
        return "" if self.find(member_id) else "UNKNOWN_MEMBER_ID"

    def restart_session_timer(self, member: dict[str, Any], ms: int | None = None) -> None:
        due = self.now_ms + (member["session"] if ms is None else ms)
        self.timers[f"session {member['id']}"] = (due, ("session_timeout", member["id"]))

    def respond(self, waiter: int | None, response: Response) -> None:
        if waiter is not None:
            self.responses[waiter] = response

    def generation_of(self, member: dict[str, Any]) -> Response:
        leads = member["id"] == self.leader
        member_ids = tuple(other["id"] for other in self.members) if leads else ()
        return ("NONE", member["id"], self.generation, self.protocol, self.leader, member_ids, False)

    def drop(self, member_id: str) -> None:
        self.members = [member for member in self.members if member["id"] != member_id]
        self.pending = [other for other in self.pending if other != member_id]
        self.unsynced = [other for other in self.unsynced if other != member_id]
        if self.leader == member_id:
            self.leader = self.members[0]["id"] if self.members else None

    def remove(self, member: dict[str, Any]) -> None:
        self.respond(member["joining"], ("UNKNOWN_MEMBER_ID", ""))
        self.respond(member["syncing"], ("UNKNOWN_MEMBER_ID", b""))
        self.drop(member["id"])
        self.timers.pop(f"session {member['id']}", None)

    def common(self, protocol_lists: list[list[tuple[str, bytes]]]) -> set[str]:
        names = [{name for name, _ in protocols} for protocols in protocol_lists]
        return set.intersection(*names) if names else set()

    def chosen(self, protocol_lists: list[list[tuple[str, bytes]]]) -> str:
        common = self.common(protocol_lists)
        ballots = [next(name for name, _ in protocols if name in common) for protocols in protocol_lists]
        return max(dict.fromkeys(ballots), key=ballots.count)

    def enter(self, state: str) -> None:
        self.before, self.state = self.state, state

    # ---- rebalances -------------------------------------------------------------------------------------------------

    def rebalance(self) -> None:
        if self.state == "CompletingRebalance":
            for member in self.members:
                member["assignment"] = b""
                if member["syncing"] is not None:
                    self.respond(member["syncing"], ("REBALANCE_IN_PROGRESS", b""))
                    member["syncing"] = None
                    self.restart_session_timer(member)
        self.unsynced = []
        self.timers.pop("sync", None)
        was_empty = self.state == "Empty"
        self.enter("PreparingRebalance")
        longest = max((member["rebalance"] for member in self.members), default=0)
        if was_empty:
            left_ms = max(longest - self.delay_ms, 0)
            self.timers["join"] = (self.now_ms + self.delay_ms, ("initial_delay_timeout", self.delay_ms, left_ms))
        elif self.all_joined():
            self.complete()
        else:
            self.timers["join"] = (self.now_ms + longest, ("join_timeout",))

    def all_joined(self) -> bool:
        return not self.pending and all(member["joining"] is not None for member in self.members)

    def on_join(self) -> None:
        """Start a rebalance, or complete it if all members joined.

        The initial rebalance of an empty group ends by its timer only.
        """
        if self.state != "PreparingRebalance":
            self.rebalance()
        elif self.before != "Empty" and self.all_joined():
            self.complete()

    def join_timeout(self) -> None:
        if self.state == "PreparingRebalance":  # after a refused append for an empty group, stopped timers run again
            self.complete()

    def initial_delay_timeout(self, delay_ms: int, left_ms: int) -> None:
        if self.state != "PreparingRebalance":
            return
        if self.new_member_joined and left_ms:
            self.new_member_joined = False
            next_ms = min(self.delay_ms, left_ms)
            self.timers["join"] = (
                self.now_ms + next_ms,
                ("initial_delay_timeout", next_ms, max(left_ms - delay_ms, 0)),
            )
        else:
            self.complete()

    def complete(self) -> None:
        self.timers.pop("join", None)
        for member in list(self.members):
            if member["joining"] is None and member["instance"] is None:
                self.drop(member["id"])
                self.timers.pop(f"session {member['id']}", None)
        joined = [member for member in self.members if member["joining"] is not None]
        if self.members and not joined:
            longest = max(member["rebalance"] for member in self.members)
            self.timers["join"] = (self.now_ms + longest, ("join_timeout",))
            return
        self.generation += 1
        if not self.members:
            self.protocol, self.unsynced = None, []
            self.enter("Empty")
            self.wrote = "empty"
            return
        if self.leader not in [member["id"] for member in joined]:
            self.leader = joined[0]["id"]
        self.protocol = self.chosen([member["protocols"] for member in self.members])
        self.enter("CompletingRebalance")
        for member in self.members:
            self.respond(member["joining"], self.generation_of(member))
            member["joining"], member["new"] = None, False
            self.restart_session_timer(member)
        self.unsynced = [member["id"] for member in self.members]
        longest = max(member["rebalance"] for member in self.members)
        self.timers["sync"] = (self.now_ms + longest, ("sync_timeout", self.generation))

    def sync_timeout(self, generation: int) -> None:
        if generation == self.generation and self.unsynced and self.state in {"CompletingRebalance", "Stable"}:
            for member_id in list(self.unsynced):
                member = self.find(member_id)
                assert member is not None
                self.remove(member)
            self.rebalance()

    def session_timeout(self, member_id: str) -> None:
        if member_id in self.pending:
            self.drop(member_id)
            if self.state == "PreparingRebalance" and self.all_joined():
                self.complete()
            return
        member = self.find(member_id)
        if member is None:
            return
        is_waiting = member["joining"] is not None or member["syncing"] is not None
        if is_waiting and not member["new"]:
            return
        self.remove(member)
        if self.state != "PreparingRebalance":
            self.rebalance()
        elif self.all_joined():
            self.complete()
