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
FOREVER_MS = 2_147_483_647


@dataclass
class Model:
    """Model of one transactional id. `fresh` is the next unused producer id.

    `next` is the identity of the client while it differs from that of the transaction.
    """

    fresh: int = 1_000
    exists: bool = False
    state: str = "Empty"
    pid: int = -1
    epoch: int = -1
    prev: int = -1
    next: tuple[int, int] | None = None
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

    @property
    def client(self) -> tuple[int, int]:
        return self.next or (self.pid, self.epoch)

    @property
    def kept(self) -> bool:
        return self.state == "Ongoing" and self.next is not None

    def after(self, identity: tuple[int, int]) -> tuple[int, int]:
        return (self.next_producer_id(), 0) if identity[1] >= 32_766 else (identity[0], identity[1] + 1)

    def init(self, expected: tuple[int, int] | None, timeout_ms: int, level: int, now_ms: int) -> object:
        if not self.exists:
            self.pid = self.prev = self.next_producer_id()
            self._empty(0, -1, timeout_ms, now_ms)
            return self.pid, 0
        if self.busy:
            return RETRY
        if expected and expected[0] != self.client[0] and not (expected[0] == self.prev and expected[1] >= 32_766):
            return FENCED
        if self.prepared:
            return RETRY
        if self.state == "Ongoing":
            if expected and expected != self.client:
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

    def keep(self, expected: tuple[int, int] | None, timeout_ms: int, level: int, now_ms: int) -> object:
        if not self.exists or self.busy or self.state != "Ongoing":
            identity = self.init(expected, timeout_ms, level, now_ms)
            return identity if isinstance(identity, str) else (identity, None)
        owner, ongoing = self.client, (self.pid, self.epoch)
        if expected:
            if self.kept and expected == (self.prev, self.last):
                return owner, ongoing
            if expected != owner:
                return FENCED
        self.next, self.prev, self.last = self.after(owner), owner[0], owner[1] if expected else -1
        self.update_ms = now_ms
        if timeout_ms == FOREVER_MS:
            self.timeout_ms = timeout_ms
        return self.next, ongoing

    def _empty(self, epoch: int, last: int, timeout_ms: int, now_ms: int) -> None:
        self.exists, self.state, self.epoch, self.last, self.timeout_ms = True, "Empty", epoch, last, timeout_ms
        self.prev, self.start_ms, self.update_ms, self.parts = self.pid, -1, now_ms, []

    def add(self, pid: int, epoch: int, parts: list[str], version: int, now_ms: int) -> object:
        if not self.exists:
            return MAPPING
        if self.busy and (self.prepared or self.state == "Empty"):
            return RETRY
        if refusal := self._refusal(pid, epoch):
            return refusal
        missing = [part for part in parts if part not in self.parts]
        if self.state == "Ongoing" and not missing:
            return dict.fromkeys(parts, "NONE")
        if self.state != "Ongoing":
            self.start_ms = now_ms
        self.state, self.update_ms, self.version, self.prev = "Ongoing", now_ms, version, self.pid
        self.parts += missing
        return dict.fromkeys(parts, "NONE")

    def _refusal(self, pid: int, epoch: int) -> str:
        """Return the error of a client that wants to write, or the empty string."""
        if pid not in {self.client[0], self.pid}:
            return MAPPING
        if (pid, epoch) != self.client:
            return FENCED
        return INVALID if self.kept else RETRY if self.prepared else ""

    def verify(self, pid: int, epoch: int, parts: list[str]) -> object:
        if not self.exists:
            return MAPPING
        if refusal := self._refusal(pid, epoch):
            return refusal
        return {part: "NONE" if part in self.parts else "TRANSACTION_ABORTABLE" for part in parts}

    def end_classic(self, pid: int, epoch: int, commit: bool, now_ms: int) -> object:
        if not self.exists or pid not in {self.client[0], self.pid}:
            return MAPPING
        if (pid, epoch) != self.client:
            return FENCED
        if self.busy:
            return RETRY
        if self.kept:
            return "UNSUPPORTED_VERSION"
        result = "Commit" if commit else "Abort"
        if self.state == "Ongoing":
            self._prepare(result, 0, now_ms)
        elif self.state == f"Prepare{result}":
            return RETRY
        elif self.state != f"Complete{result}":
            return INVALID
        return self.client

    def end_tv2(self, pid: int, epoch: int, commit: bool, now_ms: int) -> object:
        if not self.exists:
            return MAPPING
        if self.busy:
            return RETRY
        ended_classic = self.state.startswith("Complete") and self.version < 2
        bump_retry = self.client == (pid, epoch + 1) and not ended_classic
        overflow_retry = self.prev == pid and epoch == 32_766 and self.client[1] == 0
        if pid not in {self.client[0], self.pid} and not overflow_retry:
            return MAPPING
        epoch_matches, result = (pid, epoch) == self.client, "Commit" if commit else "Abort"
        if self.state in {"Ongoing", "Empty"}:
            if not epoch_matches:
                return FENCED
            if self.state == "Empty" and commit:
                return INVALID
        elif self.prepared:
            if not bump_retry and not (overflow_retry and self.next):
                return FENCED
            return RETRY if self.state == f"Prepare{result}" else INVALID
        elif (bump_retry and self.version == 2) or overflow_retry:
            return self.client if self.state == f"Complete{result}" else INVALID
        elif not epoch_matches:
            return FENCED
        elif commit:
            return INVALID
        if self.epoch == 32_767 and commit:
            return "UNKNOWN_SERVER_ERROR"
        self._prepare(result, 2, now_ms)
        return self.client

    def _prepare(self, result: str, version: int, now_ms: int) -> None:
        if self.state != "Ongoing":
            self.start_ms, self.parts = now_ms, []
        owner, kept = self.client, self.kept
        self.state, self.update_ms, self.version, self.prev = f"Prepare{result}", now_ms, version, owner[0]
        if version == 2:
            self.last = owner[1]
            if kept or self.epoch >= 32_766:
                self.next = self.after(owner)
            self.epoch = min(self.epoch + 1, 32_767)
        self.markers = (self.pid, self.epoch)

    def abort_by_broker(self, level: int, now_ms: int) -> None:
        if level == 2 or self.kept:
            self._prepare("Abort", 2, now_ms)
        else:
            self._prepare("Abort", 0, now_ms)
            self.epoch, self.last = min(self.epoch + 1, 32_767), -1
            self.markers = (self.pid, self.epoch)

    def time_out(self, level: int, now_ms: int) -> bool:
        if self.state != "Ongoing" or self.timeout_ms == FOREVER_MS:
            return False
        if not self.committed or not self.start_ms + self.timeout_ms < now_ms:
            return False
        self.abort_by_broker(level, now_ms)
        return True

    def complete(self, now_ms: int) -> None:
        self.state = self.state.replace("Prepare", "Complete")
        self.parts, self.update_ms, self.markers = [], now_ms, None
        if self.next:
            (self.pid, self.epoch), self.next = self.next, None
        else:
            self.prev = self.pid

    def expires(self, now_ms: int) -> bool:
        idle = self.exists and self.state in {"Empty", "CompleteCommit", "CompleteAbort"}
        return idle and self.committed and self.update_ms <= now_ms - WEEK_MS

    def crash(self, level: int) -> None:
        self.last, self.given_up = -1, False
        if level == 0 and not self.next:
            self.prev, self.version = -1, 0
