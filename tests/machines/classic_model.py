"""Model of one classic group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, and the checks of OffsetCommit."""

from __future__ import annotations

from typing import Any

from tests.machines.classic_model_phases import NEW_MEMBER_MS, Phases, Response

SESSION_MS = (6_000, 1_800_000)


class Model(Phases):
    """Model of one classic group."""

    def join(self, waiter: int, request: dict[str, Any]) -> Response | None:
        """Join a member. Return None if the response comes later."""
        member_id, instance, protocols = request["id"], request["instance"], request["protocols"]
        if not SESSION_MS[0] <= request["session"] <= SESSION_MS[1]:
            return ("INVALID_SESSION_TIMEOUT", member_id)
        if self.state == "Dead" and member_id:
            return ("UNKNOWN_MEMBER_ID", member_id)
        if not self.has_capacity(member_id):
            self.refuse(member_id)
            return ("GROUP_MAX_SIZE_REACHED", "")
        if not self.protocols_match(request["type"], protocols):
            return ("INCONSISTENT_GROUP_PROTOCOL", member_id)
        if member_id in self.pending:
            if instance is not None:
                return ("UNKNOWN_SERVER_ERROR", "")
            return self.add(waiter, member_id, request)
        if member_id:
            return self.rejoin(waiter, request)
        self.generated_ids += 1
        new_id = f"{request['client'] if instance is None else instance}-{self.generated_ids}"
        if self.owner(instance) is not None:
            return self.replace(waiter, new_id, request)
        if self.state == "Dead":
            self.enter("Empty")
            self.wrote = "made"
        if instance is None and request["version"] >= 4:
            self.pending.append(new_id)
            self.timers[f"session {new_id}"] = (self.now_ms + request["session"], ("session_timeout", new_id))
            return ("MEMBER_ID_REQUIRED", new_id)
        return self.add(waiter, new_id, request)

    def has_capacity(self, member_id: str) -> bool:
        member = self.find(member_id)
        if self.state in {"Empty", "Dead"}:
            return True
        if self.state == "PreparingRebalance":
            joined = [other for other in self.members if other["joining"] is not None]
            return member in joined or len(joined) < self.size
        return member is not None or len(self.members) < self.size

    def refuse(self, member_id: str) -> None:
        """Remove a member that exceeds the group's size. The rebalance no longer waits for it."""
        if member_id in self.pending or self.find(member_id):
            self.drop(member_id)
            self.timers.pop(f"session {member_id}", None)
            if self.state == "PreparingRebalance" and self.before != "Empty" and self.all_joined():
                self.complete()

    def protocols_match(self, protocol_type: str, protocols: list[tuple[str, bytes]]) -> bool:
        if self.state in {"Empty", "Dead"}:
            return bool(protocol_type and protocols)
        names = {name for name, _ in protocols}
        common = self.common([member["protocols"] for member in self.members]) if self.members else names
        return protocol_type == self.type and bool(names & common)

    def add(self, waiter: int, member_id: str, request: dict[str, Any]) -> Response | None:
        if self.state == "PreparingRebalance" and self.before == "Empty":
            self.new_member_joined = True
        if not self.members:
            self.type = request["type"]
        self.leader = self.leader or member_id
        member = {name: request[name] for name in ("instance", "protocols", "session", "rebalance")}
        member |= {"id": member_id, "joining": waiter, "syncing": None, "new": True, "assignment": b""}
        self.members.append(member)
        self.pending = [other for other in self.pending if other != member_id]
        self.restart_session_timer(member, NEW_MEMBER_MS)
        self.on_join()
        return None

    def update_member(self, waiter: int, member: dict[str, Any], request: dict[str, Any]) -> None:
        member |= {name: request[name] for name in ("protocols", "session", "rebalance")}
        self.respond(member["joining"], ("REBALANCE_IN_PROGRESS", member["id"]))
        member["joining"] = waiter

    def rejoin(self, waiter: int, request: dict[str, Any]) -> Response | None:
        error = self.identity_error(request["id"], request["instance"])
        member = self.find(request["id"])
        if error or member is None:
            return (error, request["id"])
        if member["protocols"] == request["protocols"] and (
            self.state == "CompletingRebalance" or (self.state == "Stable" and self.leader != member["id"])
        ):
            return self.generation_of(member)
        self.update_member(waiter, member, request)
        self.on_join()
        return None

    def replace(self, waiter: int, new_id: str, request: dict[str, Any]) -> Response | None:
        old = self.owner(request["instance"])
        assert old is not None
        old_leader, old_id = self.leader, old["id"]
        others = [request["protocols"] if member is old else member["protocols"] for member in self.members]
        keeps_generation = self.state == "Stable" and self.chosen(others) == self.protocol
        self.respond(old["joining"], ("FENCED_INSTANCE_ID", old_id))
        self.respond(old["syncing"], ("FENCED_INSTANCE_ID", b""))
        self.timers.pop(f"session {old_id}", None)
        self.members.remove(old)
        self.unsynced = [other for other in self.unsynced if other != old_id] + [new_id] * (old_id in self.unsynced)
        member = {**old, "id": new_id, "joining": None, "syncing": None, "new": False}
        self.members.append(member)
        self.leader = new_id if old_leader == old_id else old_leader
        self.restart_session_timer(member)
        if keeps_generation:
            member |= {name: request[name] for name in ("protocols", "session", "rebalance")}
            self.wrote = "stable"
            response = self.generation_of(member)
            if request["version"] >= 9:
                return (*response[:-1], self.leader == new_id)
            return (*response[:4], old_leader, (), False)
        self.update_member(waiter, member, request)
        self.on_join()
        return None

    def sync(
        self,
        waiter: int,
        member_id: str,
        instance: str | None,
        generation: int,
        assignments: dict[str, bytes],
        protocol_name: Any,
    ) -> Response | None:
        error = self.identity_error(member_id, instance)
        member = self.find(member_id)
        if not error and generation != self.generation:
            error = "ILLEGAL_GENERATION"
        if not error and protocol_name is not None and self.protocol not in {None, protocol_name}:
            error = "INCONSISTENT_GROUP_PROTOCOL"
        if not error and self.state == "PreparingRebalance":
            error = "REBALANCE_IN_PROGRESS"
        if error or member is None:
            return (error, b"")
        if self.state == "CompletingRebalance":
            self.respond(member["syncing"], ("REBALANCE_IN_PROGRESS", b""))
            member["syncing"] = waiter
        self.unsynced = [other for other in self.unsynced if other != member_id]
        if not self.unsynced:
            self.timers.pop("sync", None)
        if self.state == "Stable":
            return ("NONE", member["assignment"])
        if member_id != self.leader:
            return None
        for other in self.members:
            other["assignment"] = assignments.get(other["id"], b"")
            if other["syncing"] is not None:
                if other is not member:
                    self.respond(other["syncing"], ("NONE", other["assignment"]))
                other["syncing"] = None
                self.restart_session_timer(other)
        self.enter("Stable")
        self.wrote = "stable"
        return ("NONE", member["assignment"])

    def heartbeat(self, member_id: str, instance: str | None, generation: int) -> str:
        error = self.identity_error(member_id, instance)
        if error:
            return error
        if generation != self.generation:
            return "ILLEGAL_GENERATION"
        member = self.find(member_id)
        assert member is not None
        self.restart_session_timer(member)
        return "REBALANCE_IN_PROGRESS" if self.state == "PreparingRebalance" else "NONE"

    def leave(self, *members: tuple[str, str | None]) -> list[str]:
        errors = [self.leave_one(member_id, instance) for member_id, instance in members]
        if "NONE" in errors:
            if self.state in {"Stable", "CompletingRebalance"}:
                self.rebalance()
            elif self.state == "PreparingRebalance" and self.before != "Empty" and self.all_joined():
                self.complete()
        return errors

    def leave_one(self, member_id: str, instance: str | None) -> str:
        if member_id in self.pending:
            self.drop(member_id)
            self.timers.pop(f"session {member_id}", None)
            return "NONE"
        owner = self.owner(instance)
        if not member_id and owner is not None:
            member_id = owner["id"]
        error = self.identity_error(member_id, instance)
        member = self.find(member_id)
        if not error and member is not None:
            self.remove(member)
        return error or "NONE"

    def commit(self, member_id: str, instance: str | None, generation: int, txn: bool) -> str:
        if self.state == "Empty" and generation < 0:
            return "NONE"
        if member_id or instance is not None or generation >= 0:
            error = self.identity_error(member_id, instance)
            if error:
                return error
            if generation != self.generation:
                return "ILLEGAL_GENERATION"
            return "REBALANCE_IN_PROGRESS" if self.state == "CompletingRebalance" and not txn else "NONE"
        return "NONE" if txn else "UNKNOWN_MEMBER_ID"
