"""The requests that the plain model of a classic group understands."""

from __future__ import annotations

from typing import Any

from tests.machines.classic_model_phases import NEW_MEMBER_MS, Answer, Phases

SESSION_MS = (6_000, 1_800_000)


class Model(Phases):
    def join(self, waiter: int, ask: dict[str, Any]) -> Answer | None:
        """None: it waits."""
        member_id, instance, protocols = ask["id"], ask["instance"], ask["protocols"]
        if not SESSION_MS[0] <= ask["session"] <= SESSION_MS[1]:
            return ("INVALID_SESSION_TIMEOUT", member_id)
        if self.state == "Dead" and member_id:
            return ("UNKNOWN_MEMBER_ID", member_id)
        if not self.room(member_id):
            self.turn_away(member_id)
            return ("GROUP_MAX_SIZE_REACHED", "")
        if not self.understood(ask["type"], protocols):
            return ("INCONSISTENT_GROUP_PROTOCOL", member_id)
        if member_id in self.pending:
            if instance is not None:
                return ("UNKNOWN_SERVER_ERROR", "")
            return self.add(waiter, member_id, ask)
        if member_id:
            return self.join_again(waiter, ask)
        self.drawn += 1
        fresh = f"{ask['client'] if instance is None else instance}-{self.drawn}"
        if self.owner(instance) is not None:
            return self.replace(waiter, fresh, ask)
        if self.state == "Dead":
            self.enter("Empty")
            self.wrote = "made"
        if instance is None and ask["version"] >= 4:
            self.pending.append(fresh)
            self.clocks[f"session {fresh}"] = (self.now_ms + ask["session"], ("silent", fresh))
            return ("MEMBER_ID_REQUIRED", fresh)
        return self.add(waiter, fresh, ask)

    def room(self, member_id: str) -> bool:
        member = self.find(member_id)
        if self.state in {"Empty", "Dead"}:
            return True
        if self.state == "PreparingRebalance":
            joined = [one for one in self.members if one["joining"] is not None]
            return member in joined or len(joined) < self.size
        return member is not None or len(self.members) < self.size

    def turn_away(self, member_id: str) -> None:
        """Those that have joined wait for nobody that was told to stay away."""
        if member_id in self.pending or self.find(member_id):
            self.drop(member_id)
            self.clocks.pop(f"session {member_id}", None)
            if self.state == "PreparingRebalance" and self.before != "Empty" and self.all_in():
                self.complete()

    def understood(self, kind: str, protocols: list[tuple[str, bytes]]) -> bool:
        if self.state in {"Empty", "Dead"}:
            return bool(kind and protocols)
        names = {name for name, _ in protocols}
        common = self.common([member["protocols"] for member in self.members]) if self.members else names
        return kind == self.type and bool(names & common)

    def add(self, waiter: int, member_id: str, ask: dict[str, Any]) -> Answer | None:
        if self.state == "PreparingRebalance" and self.before == "Empty":
            self.came = True
        if not self.members:
            self.type = ask["type"]
        self.leader = self.leader or member_id
        member = {name: ask[name] for name in ("instance", "protocols", "session", "rebalance")}
        member |= {"id": member_id, "joining": waiter, "syncing": None, "new": True, "assignment": b""}
        self.members.append(member)
        self.pending = [one for one in self.pending if one != member_id]
        self.hear(member, NEW_MEMBER_MS)
        self.grown()
        return None

    def take(self, waiter: int, member: dict[str, Any], ask: dict[str, Any]) -> None:
        member |= {name: ask[name] for name in ("protocols", "session", "rebalance")}
        self.tell(member["joining"], ("REBALANCE_IN_PROGRESS", member["id"]))
        member["joining"] = waiter

    def join_again(self, waiter: int, ask: dict[str, Any]) -> Answer | None:
        error = self.who(ask["id"], ask["instance"])
        member = self.find(ask["id"])
        if error or member is None:
            return (error, ask["id"])
        if member["protocols"] == ask["protocols"] and (
            self.state == "CompletingRebalance" or (self.state == "Stable" and self.leader != member["id"])
        ):
            return self.generation_of(member)
        self.take(waiter, member, ask)
        self.grown()
        return None

    def replace(self, waiter: int, fresh: str, ask: dict[str, Any]) -> Answer | None:
        old = self.owner(ask["instance"])
        assert old is not None
        led_by, old_id = self.leader, old["id"]
        others = [ask["protocols"] if member is old else member["protocols"] for member in self.members]
        quiet = self.state == "Stable" and self.chosen(others) == self.protocol
        self.tell(old["joining"], ("FENCED_INSTANCE_ID", old_id))
        self.tell(old["syncing"], ("FENCED_INSTANCE_ID", b""))
        self.clocks.pop(f"session {old_id}", None)
        self.members.remove(old)
        self.unsynced = [one for one in self.unsynced if one != old_id] + [fresh] * (old_id in self.unsynced)
        member = {**old, "id": fresh, "joining": None, "syncing": None, "new": False}
        self.members.append(member)
        self.leader = fresh if led_by == old_id else led_by
        self.hear(member)
        if quiet:
            member |= {name: ask[name] for name in ("protocols", "session", "rebalance")}
            self.wrote = "stable"
            told = self.generation_of(member)
            if ask["version"] >= 9:
                return (*told[:-1], self.leader == fresh)
            return (*told[:4], led_by, (), False)
        self.take(waiter, member, ask)
        self.grown()
        return None

    def sync(
        self, waiter: int, member_id: str, instance: str | None, generation: int, given: dict[str, bytes], named: Any
    ) -> Answer | None:
        error = self.who(member_id, instance)
        member = self.find(member_id)
        if not error and generation != self.generation:
            error = "ILLEGAL_GENERATION"
        if not error and named is not None and self.protocol not in {None, named}:
            error = "INCONSISTENT_GROUP_PROTOCOL"
        if not error and self.state == "PreparingRebalance":
            error = "REBALANCE_IN_PROGRESS"
        if error or member is None:
            return (error, b"")
        if self.state == "CompletingRebalance":
            self.tell(member["syncing"], ("REBALANCE_IN_PROGRESS", b""))
            member["syncing"] = waiter
        self.unsynced = [one for one in self.unsynced if one != member_id]
        if not self.unsynced:
            self.clocks.pop("sync", None)
        if self.state == "Stable":
            return ("NONE", member["assignment"])
        if member_id != self.leader:
            return None
        for one in self.members:
            one["assignment"] = given.get(one["id"], b"")
            if one["syncing"] is not None:
                if one is not member:
                    self.tell(one["syncing"], ("NONE", one["assignment"]))
                one["syncing"] = None
                self.hear(one)
        self.enter("Stable")
        self.wrote = "stable"
        return ("NONE", member["assignment"])

    def heartbeat(self, member_id: str, instance: str | None, generation: int) -> str:
        error = self.who(member_id, instance)
        if error:
            return error
        if generation != self.generation:
            return "ILLEGAL_GENERATION"
        member = self.find(member_id)
        assert member is not None
        self.hear(member)
        return "REBALANCE_IN_PROGRESS" if self.state == "PreparingRebalance" else "NONE"

    def leave(self, *who: tuple[str, str | None]) -> list[str]:
        said = [self.leave_one(member_id, instance) for member_id, instance in who]
        if "NONE" in said:
            if self.state in {"Stable", "CompletingRebalance"}:
                self.rebalance()
            elif self.state == "PreparingRebalance" and self.before != "Empty" and self.all_in():
                self.complete()
        return said

    def leave_one(self, member_id: str, instance: str | None) -> str:
        if member_id in self.pending:
            self.drop(member_id)
            self.clocks.pop(f"session {member_id}", None)
            return "NONE"
        owner = self.owner(instance)
        if not member_id and owner is not None:
            member_id = owner["id"]
        error = self.who(member_id, instance)
        member = self.find(member_id)
        if not error and member is not None:
            self.dismiss(member)
        return error or "NONE"

    def commit(self, member_id: str, instance: str | None, generation: int, txn: bool) -> str:
        if self.state == "Empty" and generation < 0:
            return "NONE"
        if member_id or instance is not None or generation >= 0:
            error = self.who(member_id, instance)
            if error:
                return error
            if generation != self.generation:
                return "ILLEGAL_GENERATION"
            return "REBALANCE_IN_PROGRESS" if self.state == "CompletingRebalance" and not txn else "NONE"
        return "NONE" if txn else "UNKNOWN_MEMBER_ID"
