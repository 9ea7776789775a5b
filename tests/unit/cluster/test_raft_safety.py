"""Random schedules against the raft core: whatever is lost, cut, crashed or slow, what is agreed stays agreed."""

from __future__ import annotations

import random

import pytest

from cluster.raft.election import Role
from tests.support.raft_env import RaftEnv

STEPS = 800
SEEDS = 40


class Watch:
    """Invariants that hold after every step; remembers what has ever been true."""

    def __init__(self, env: RaftEnv) -> None:
        self.env = env
        self.leaders: dict[int, int] = {}
        self.committed: list[object] = []
        self.high_watermarks: dict[int, int] = {}
        self.elections = 0
        self.truncations = 0

    def check(self) -> None:
        for node, core in self.env.cores.items():
            if core.role is Role.LEADER:
                if core.epoch not in self.leaders:
                    self.elections += 1
                assert self.leaders.setdefault(core.epoch, node) == node, "two leaders of one epoch"
                self.leader_is_complete(node)
            assert core.high_watermark >= self.high_watermarks.get(node, 0), "a high watermark went back"
            self.high_watermarks[node] = core.high_watermark
            self.agrees(node, core.high_watermark)

    def agrees(self, node: int, high_watermark: int) -> None:
        entries = [e for e in self.env.disks[node].entries if e.last_offset < high_watermark]
        known = min(len(entries), len(self.committed))
        assert entries[:known] == self.committed[:known], "two nodes committed different entries"
        self.committed.extend(entries[known:])

    def leader_is_complete(self, node: int) -> None:
        entries: list[object] = [*self.env.disks[node].entries, *self.env.cores[node].log.unstable]
        assert entries[: len(self.committed)] == self.committed, "a leader lacks committed entries"


def step(env: RaftEnv, rng: random.Random, number: int) -> None:
    nodes = list(env.disks)
    up = list(env.cores)
    node = rng.choice(nodes)
    action = rng.choice(["tick", "tick", "work", "work", "deliver", "deliver", "some", "propose", "propose", "trouble"])
    if action == "tick":
        env.now_ms += rng.choice([1, 50, 300, 1_100])
        for each in up:
            env.cores[each].tick(env.now_ms)
    elif action == "work":
        for each in up:
            env.work(each)
    elif action == "deliver":
        env.do_deliver()
    elif action == "some" and env.network:
        message = rng.choice(env.network)
        if rng.random() < 0.5:
            env.network.remove(message)  # otherwise it stays, and is delivered twice
        env.hand_over(message)
    elif action == "propose" and node in env.cores:
        env.do_propose(str(node), f"v{number}")
    elif action == "trouble":
        trouble(env, rng, node)


def trouble(env: RaftEnv, rng: random.Random, node: int) -> None:
    kind = rng.choice(
        ["cut", "heal", "heal", "crash", "restart", "restart", "slow", "slow", "fast", "fast", "fast", "resign", "drop"]
    )
    if kind == "cut":
        env.apart = tuple(each for each in env.disks if rng.random() < 0.4)
    elif kind == "heal":
        env.apart = ()
    elif kind == "crash" and (up := list(env.slow) or list(env.cores)):
        env.do_crash(str(rng.choice(up)))  # one that has something to lose, if there is any
    elif kind == "restart" and node not in env.cores:
        env.do_restart(str(node))
    elif kind == "slow" and node in env.cores and node not in env.slow:
        env.do_slow(str(node))
    elif kind == "fast" and node in env.slow:
        env.do_fast(str(node))
    elif kind == "resign" and node in env.cores:
        env.do_resign(str(node))
    elif kind == "drop":
        env.network.clear()


def settle(env: RaftEnv) -> None:
    env.do_heal()
    for node in list(env.slow):
        env.do_fast(str(node))
    for node in env.disks:
        if node not in env.cores:
            env.do_restart(str(node))
    env.do_stabilize()
    env.do_tick("15000")


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_agreement_under_any_schedule(size: int) -> None:
    elections = agreed = 0
    for seed in range(SEEDS):
        rng = random.Random(seed)
        env = RaftEnv()
        env.do_nodes(str(size))
        watch = Watch(env)
        for number in range(STEPS):
            step(env, rng, number)
            watch.high_watermarks = {n: w for n, w in watch.high_watermarks.items() if n in env.cores}
            watch.check()
        settle(env)
        watch.check()
        leaders = [node for node, core in env.cores.items() if core.role is Role.LEADER]
        assert len(leaders) == 1, f"seed {seed}: no agreement on a leader after everything is well again"
        ends = {core.high_watermark for core in env.cores.values()}
        assert ends == {env.cores[leaders[0]].log.end_offset}, f"seed {seed}: not everybody has caught up"
        elections += watch.elections
        agreed += len(watch.committed)
    assert elections > SEEDS
    assert agreed > 3 * SEEDS
