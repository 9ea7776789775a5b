"""Model of the transaction coordinator for one transactional id.

It shares no code with coordinator/txn: it has no table and no records, and each request changes the model directly.
"""

from __future__ import annotations

from dataclasses import dataclass, field

RETRY = "RETRY"
MAPPING = "INVALID_PRODUCER_ID_MAPPING"
FENCED = "PRODUCER_FENCED"
INVALID = "INVALID_TXN_STATE"
WEEK_MS = 604_800_000


@dataclass
class Model:
    """Model of one transactional id. `fresh` is the next unused producer id."""

    fresh: int = 1_000
    exists: bool = False
    state: str = "Empty"
    pid: int = -1
    epoch: int = -1
    prev: int = -1
    next: int = -1
    last: int = -1
    timeout_ms: int = 0
    start_ms: int = -1
    update_ms: int = -1
    version: int = 0
    parts: list[str] = field(default_factory=list)
    markers: tuple[int, int] | None = None
    committed: bool = True
    given_up: bool = False

    def next_producer_id(self) -> int:
        self.fresh += 1
        return self.fresh - 1

    @property
    def prepared(self) -> bool:
        return self.state in {"PrepareCommit", "PrepareAbort"}

    @property
    def busy(self) -> bool:
        return not self.committed or (self.prepared and not self.given_up)

    def init(self, expected: tuple[int, int] | None, timeout_ms: int, level: int, now_ms: int) -> object:
        if not self.exists:
            self.pid = self.prev = self.next_producer_id()
            self._empty(0, -1, timeout_ms, now_ms)
            return self.pid, 0
        if self.busy:
            return RETRY
        if expected and expected[0] != self.pid and not (expected[0] == self.prev and expected[1] >= 32_766):
            return FENCED
        if self.prepared:
            return RETRY
        if self.state == "Ongoing":
            if expected and expected[1] != self.epoch:
                return FENCED
            self.abort_by_broker(level, now_ms)
            return RETRY
        if self.epoch >= 32_766:
            if expected and expected[1] != self.epoch:
                return "UNKNOWN_SERVER_ERROR"
            old = self.pid
            self.pid = self.next_producer_id()
            self._empty(0, self.epoch if expected else -1, timeout_ms, now_ms)
            self.prev = old
        elif not expected:
            self._empty(self.epoch + 1, -1, timeout_ms, now_ms)
        elif expected[1] == self.epoch:
            self._empty(self.epoch + 1, self.epoch, timeout_ms, now_ms)
        elif expected[1] == self.last:
            self._empty(self.epoch, self.last, timeout_ms, now_ms)
        else:
            return FENCED
        return self.pid, self.epoch

    def _empty(self, epoch: int, last: int, timeout_ms: int, now_ms: int) -> None:
        self.exists, self.state, self.epoch, self.last, self.timeout_ms = True, "Empty", epoch, last, timeout_ms
        self.prev, self.start_ms, self.update_ms, self.parts = self.pid, -1, now_ms, []

    def add(self, pid: int, epoch: int, parts: list[str], version: int, now_ms: int) -> object:
        if not self.exists:
            return MAPPING
        if self.busy and (self.prepared or self.state == "Empty"):
            return RETRY
        if pid != self.pid:
            return MAPPING
        if epoch != self.epoch:
            return FENCED
        if self.prepared:
            return RETRY
        missing = [part for part in parts if part not in self.parts]
        if self.state == "Ongoing" and not missing:
            return dict.fromkeys(parts, "NONE")
        if self.state != "Ongoing":
            self.start_ms = now_ms
        self.state, self.update_ms, self.version, self.prev = "Ongoing", now_ms, version, self.pid
        self.parts += missing
        return dict.fromkeys(parts, "NONE")

    def verify(self, pid: int, epoch: int, parts: list[str]) -> object:
        if not self.exists or pid != self.pid:
            return MAPPING
        if epoch != self.epoch:
            return FENCED
        if self.prepared:
            return RETRY
        return {part: "NONE" if part in self.parts else "TRANSACTION_ABORTABLE" for part in parts}

    def end_classic(self, pid: int, epoch: int, commit: bool, now_ms: int) -> object:
        if not self.exists or pid != self.pid:
            return MAPPING
        if epoch != self.epoch:
            return FENCED
        if self.busy:
            return RETRY
        result = "Commit" if commit else "Abort"
        if self.state == "Ongoing":
            self._prepare(result, 0, now_ms)
        elif self.state == f"Prepare{result}":
            return RETRY
        elif self.state != f"Complete{result}":
            return INVALID
        return self.pid, self.epoch

    def end_tv2(self, pid: int, epoch: int, commit: bool, now_ms: int) -> object:
        if not self.exists:
            return MAPPING
        if self.busy:
            return RETRY
        ended_classic = self.state.startswith("Complete") and self.version < 2
        bump_retry = self.epoch == epoch + 1 and not ended_classic
        overflow_retry = self.prev == pid and epoch == 32_766 and self.epoch == 0
        if pid != self.pid and not overflow_retry:
            return MAPPING
        epoch_matches, result = epoch == self.epoch, "Commit" if commit else "Abort"
        if self.state in {"Ongoing", "Empty"}:
            if not epoch_matches:
                return FENCED
            if self.state == "Empty" and commit:
                return INVALID
        elif self.prepared:
            if not bump_retry:
                return FENCED
            return RETRY if self.state == f"Prepare{result}" else INVALID
        elif (bump_retry and self.version == 2) or overflow_retry:
            return (self.pid, self.epoch) if self.state == f"Complete{result}" else INVALID
        elif not epoch_matches:
            return FENCED
        elif commit:
            return INVALID
        if self.epoch == 32_767 and commit:
            return "UNKNOWN_SERVER_ERROR"
        self._prepare(result, 2, now_ms)
        return (self.next, 0) if self.next != -1 else (self.pid, self.epoch)

    def _prepare(self, result: str, version: int, now_ms: int) -> None:
        if self.state != "Ongoing":
            self.start_ms, self.parts = now_ms, []
        self.state, self.update_ms, self.version, self.prev = f"Prepare{result}", now_ms, version, self.pid
        if version == 2:
            self.last = self.epoch
            if self.epoch >= 32_766:
                self.next = self.next_producer_id()
            self.epoch = min(self.epoch + 1, 32_767)
        self.markers = (self.pid, self.epoch)

    def abort_by_broker(self, level: int, now_ms: int) -> None:
        if level == 2:
            self._prepare("Abort", 2, now_ms)
        else:
            self._prepare("Abort", 0, now_ms)
            self.epoch, self.last = min(self.epoch + 1, 32_767), -1
            self.markers = (self.pid, self.epoch)

    def time_out(self, level: int, now_ms: int) -> bool:
        if self.state != "Ongoing" or not self.committed or not self.start_ms + self.timeout_ms < now_ms:
            return False
        self.abort_by_broker(level, now_ms)
        return True

    def complete(self, now_ms: int) -> None:
        self.state = self.state.replace("Prepare", "Complete")
        self.prev, self.parts, self.update_ms, self.markers = self.pid, [], now_ms, None
        if self.next != -1:
            self.pid, self.epoch, self.next = self.next, 0, -1

    def expires(self, now_ms: int) -> bool:
        idle = self.exists and self.state in {"Empty", "CompleteCommit", "CompleteAbort"}
        return idle and self.committed and self.update_ms <= now_ms - WEEK_MS

    def crash(self, level: int) -> None:
        self.last, self.given_up = -1, False
        if level == 0:
            self.prev = self.next = -1
            self.version = 0
