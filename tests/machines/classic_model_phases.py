"""A plain model of one classic group, written from KIP-62, 134, 345, 394 and 814 and not from the core: dicts and lists,
nothing counted beforehand, every clock a due time. This half has no requests.

Answers are tuples: (error, member id) or (error, member id, generation, protocol, leader, members, skip) of a join,
(error, assignment) of a sync. `told` has what waiters were answered.
"""

from __future__ import annotations

import copy
from typing import Any

Answer = tuple[Any, ...]
NEW_MEMBER_MS = 300_000
REFUSED = "refused by the log"
TIMER_RETRY_MS = 500


class Phases:
    """The group, its clocks and its rebalances; requests are in classic_model.py."""

    def __init__(self, delay_ms: int, size: int, now_ms: int) -> None:
        self.delay_ms, self.size, self.now_ms = delay_ms, size, now_ms
        self.drawn = 0
        self.told: dict[int, Answer] = {}
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
        self.came = False
        self.clocks: dict[str, tuple[int, Any]] = {}
        self.wrote = ""

    # ---- every step -------------------------------------------------------------------------------------------------

    def step(self, what: str, *args: Any) -> Any:
        """One request or clock; a log that refuses leaves everything as it was, or, of an empty group, clocks and answers."""
        saved = copy.deepcopy({name: value for name, value in vars(self).items() if name not in {"drawn", "log"}})
        self.wrote = ""
        result = getattr(self, what)(*args)
        if self.wrote and self.refuses:
            keep = {"told", "clocks"} if self.wrote == "empty" else set(saved)
            for name in keep:
                setattr(self, name, saved[name])
            self.wrote = ""
            return REFUSED
        if self.wrote:
            self.log = self.written()
        return result

    def written(self) -> dict[str, Any]:
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
            due = min(((when, key) for key, (when, _) in self.clocks.items()), default=(until + 1, ""))
            if due[0] > until:
                break
            self.now_ms = max(self.now_ms, due[0])
            _, what = self.clocks.pop(due[1])
            if self.step(*what) == REFUSED:
                self.clocks.setdefault(due[1], (self.now_ms + TIMER_RETRY_MS, what))
        self.now_ms = until

    def crash(self) -> None:
        drawn_log = copy.deepcopy(self.log)
        self.forget()
        if drawn_log is None:
            return
        self.generation, self.type, self.protocol = drawn_log["generation"], drawn_log["type"], drawn_log["protocol"]
        self.leader, self.members = drawn_log["leader"], drawn_log["members"]
        self.state = "Stable" if self.members else "Empty"
        for member in self.members:
            self.hear(member)
        if len(self.members) > self.size:
            self.rebalance()

    # ---- words ------------------------------------------------------------------------------------------------------

    def find(self, member_id: str) -> dict[str, Any] | None:
        return next((member for member in self.members if member["id"] == member_id), None)

    def owner(self, instance: str | None) -> dict[str, Any] | None:
        return next(
            (member for member in self.members if instance is not None and member["instance"] == instance), None
        )

    def who(self, member_id: str, instance: str | None) -> str:
        """ "" when it is a member of that name."""
        if instance is not None:
            owner = self.owner(instance)
            if owner is None:
                return "UNKNOWN_MEMBER_ID"
            if owner["id"] != member_id:
                return "FENCED_INSTANCE_ID"
        return "" if self.find(member_id) else "UNKNOWN_MEMBER_ID"

    def hear(self, member: dict[str, Any], ms: int | None = None) -> None:
        due = self.now_ms + (member["session"] if ms is None else ms)
        self.clocks[f"session {member['id']}"] = (due, ("silent", member["id"]))

    def tell(self, waiter: int | None, answer: Answer) -> None:
        if waiter is not None:
            self.told[waiter] = answer

    def generation_of(self, member: dict[str, Any]) -> Answer:
        leads = member["id"] == self.leader
        everybody = tuple(other["id"] for other in self.members) if leads else ()
        return ("NONE", member["id"], self.generation, self.protocol, self.leader, everybody, False)

    def drop(self, member_id: str) -> None:
        self.members = [member for member in self.members if member["id"] != member_id]
        self.pending = [one for one in self.pending if one != member_id]
        self.unsynced = [one for one in self.unsynced if one != member_id]
        if self.leader == member_id:
            self.leader = self.members[0]["id"] if self.members else None

    def dismiss(self, member: dict[str, Any]) -> None:
        self.tell(member["joining"], ("UNKNOWN_MEMBER_ID", ""))
        self.tell(member["syncing"], ("UNKNOWN_MEMBER_ID", b""))
        self.drop(member["id"])
        self.clocks.pop(f"session {member['id']}", None)

    def common(self, everybody: list[list[tuple[str, bytes]]]) -> set[str]:
        names = [{name for name, _ in protocols} for protocols in everybody]
        return set.intersection(*names) if names else set()

    def chosen(self, everybody: list[list[tuple[str, bytes]]]) -> str:
        common = self.common(everybody)
        ballots = [next(name for name, _ in protocols if name in common) for protocols in everybody]
        return max(dict.fromkeys(ballots), key=ballots.count)

    def enter(self, state: str) -> None:
        self.before, self.state = self.state, state

    # ---- rebalances -------------------------------------------------------------------------------------------------

    def rebalance(self) -> None:
        if self.state == "CompletingRebalance":
            for member in self.members:
                member["assignment"] = b""
                if member["syncing"] is not None:
                    self.tell(member["syncing"], ("REBALANCE_IN_PROGRESS", b""))
                    member["syncing"] = None
                    self.hear(member)
        self.unsynced = []
        self.clocks.pop("sync", None)
        first = self.state == "Empty"
        self.enter("PreparingRebalance")
        longest = max((member["rebalance"] for member in self.members), default=0)
        if first:
            left = max(longest - self.delay_ms, 0)
            self.clocks["join"] = (self.now_ms + self.delay_ms, ("delayed", self.delay_ms, left))
        elif self.all_in():
            self.complete()
        else:
            self.clocks["join"] = (self.now_ms + longest, ("time_up",))

    def all_in(self) -> bool:
        return not self.pending and all(member["joining"] is not None for member in self.members)

    def grown(self) -> None:
        """Somebody has come: in a first rebalance the delay decides, otherwise whether all have."""
        if self.state != "PreparingRebalance":
            self.rebalance()
        elif self.before != "Empty" and self.all_in():
            self.complete()

    def time_up(self) -> None:
        if self.state == "PreparingRebalance":  # a log that refused an empty group has not heard its clocks stop
            self.complete()

    def delayed(self, delay_ms: int, left_ms: int) -> None:
        if self.state != "PreparingRebalance":
            return
        if self.came and left_ms:
            self.came = False
            again = min(self.delay_ms, left_ms)
            self.clocks["join"] = (self.now_ms + again, ("delayed", again, max(left_ms - delay_ms, 0)))
        else:
            self.complete()

    def complete(self) -> None:
        self.clocks.pop("join", None)
        for member in list(self.members):
            if member["joining"] is None and member["instance"] is None:
                self.drop(member["id"])
                self.clocks.pop(f"session {member['id']}", None)
        joined = [member for member in self.members if member["joining"] is not None]
        if self.members and not joined:
            longest = max(member["rebalance"] for member in self.members)
            self.clocks["join"] = (self.now_ms + longest, ("time_up",))
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
            self.tell(member["joining"], self.generation_of(member))
            member["joining"], member["new"] = None, False
            self.hear(member)
        self.unsynced = [member["id"] for member in self.members]
        longest = max(member["rebalance"] for member in self.members)
        self.clocks["sync"] = (self.now_ms + longest, ("unsynced_out", self.generation))

    def unsynced_out(self, generation: int) -> None:
        if generation == self.generation and self.unsynced and self.state in {"CompletingRebalance", "Stable"}:
            for member_id in list(self.unsynced):
                found = self.find(member_id)
                assert found is not None
                self.dismiss(found)
            self.rebalance()

    def silent(self, member_id: str) -> None:
        if member_id in self.pending:
            self.drop(member_id)
            if self.state == "PreparingRebalance" and self.all_in():
                self.complete()
            return
        member = self.find(member_id)
        if member is None:
            return
        waits = member["joining"] is not None or member["syncing"] is not None
        if waits and not member["new"]:
            return
        self.dismiss(member)
        if self.state != "PreparingRebalance":
            self.rebalance()
        elif self.all_in():
            self.complete()
