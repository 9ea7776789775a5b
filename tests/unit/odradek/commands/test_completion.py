"""Shell completion: names of the cluster, by the protocol between Typer's scripts and the command."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import typer

from odradek import client
from odradek.commands import completion, profiles
from odradek.commands.application import COMPLETION_VARIABLE, app
from odradek.commands.bash_completion import JoinedBashComplete, joined
from tests.support.ports import free_port
from tests.support.running_node import running

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import pytest

TOPICS = ("payments", "payments-eu", "orders")
TRANSACTIONAL_ID = "payments-1"
GROUP = "billing"
BASH_BREAKS = (":", "=")
DEADLINE_S = 60.0
"""Seconds for a completion here, because the time of users is too short for a busy machine."""
PROCESS = """
from odradek.__main__ import main
from odradek.commands import completion
completion.TIMEOUT_S = {timeout_s}
main()
"""


@asynccontextmanager
async def broker(path: Path) -> AsyncIterator[str]:
    """Run a broker with topics, a group and a transactional id. Yield its address."""
    async with running(path, "offsets.topic.num.partitions=1", "transaction.state.log.num.partitions=1") as node:
        bootstrap = f"127.0.0.1:{node.node.listeners[0].port}"
        async with client.Cluster(bootstrap) as cluster:
            for name in TOPICS:
                await client.create_topic(cluster, name, partitions=1)
            producer = client.Producer(cluster, TRANSACTIONAL_ID)
            await producer.begin()
            await producer.send(TOPICS[0], [client.ProducerRecord(None, b"v")])
            await producer.commit()
            offsets = await client.plan_offsets(cluster, GROUP, {client.TopicPartition(TOPICS[0], 0): 0})
            await client.commit_offsets(cluster, GROUP, offsets)
            await client.set_user(cluster, "alice", "secret", "SCRAM-SHA-256")
        yield bootstrap


async def completed(*words: str, home: Path, shell: str = "fish", timeout_s: float = DEADLINE_S) -> list[str]:
    """Return the completions of the last word, as the script of a shell receives them."""
    line = " ".join(("odradek", *words))
    environment = {**os.environ, "XDG_CONFIG_HOME": str(home), COMPLETION_VARIABLE: f"complete_{shell}"}
    if shell == "bash":
        for character in BASH_BREAKS:
            line = line.replace(character, f" {character} ")
        environment |= {"COMP_WORDS": "\n".join(line.split()), "COMP_CWORD": str(len(line.split(" ")) - 1)}
    else:
        environment |= {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        PROCESS.format(timeout_s=timeout_s),
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert err == b""
    return [line.partition("\t")[0] for line in out.decode().splitlines() if line]


def names(*words: str) -> list[str]:
    """Return the completions of the last word, in this process."""
    shell = JoinedBashComplete(typer.main.get_command(app), {}, "odradek", COMPLETION_VARIABLE)
    return [item.value for item in shell.get_completions(list(words[:-1]), words[-1])]


async def test_names_of_the_cluster_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(completion, "TIMEOUT_S", DEADLINE_S)
    for name in ("ODRADEK_BOOTSTRAP", "ODRADEK_DIR", "ODRADEK_CLIENT_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    async with broker(tmp_path / "data") as bootstrap:
        profiles.write(os.environ, profiles.Profiles("local", {"local": profiles.Profile(bootstrap)}))
        for words, expected in (
            (("topics", "describe", "pay"), ["payments", "payments-eu"]),
            (("topics", "describe", "__t"), ["__transaction_state"]),
            (("groups", "describe", ""), [GROUP]),
            (("txns", "describe", "p"), [TRANSACTIONAL_ID]),
            (("txns", "--bootstrap", bootstrap, "abort", "p"), [TRANSACTIONAL_ID]),
            (("brokers", "unregister", ""), ["1"]),
            (("configs", "describe", "broker", ""), ["1"]),
            (("acls", "list", "--user", ""), ["alice"]),
            (("tokens", "renew", ""), []),
            (("use", ""), ["local"]),
        ):
            assert await asyncio.to_thread(names, *words) == expected, words
        profiles.write(os.environ, profiles.Profiles())
        found = await completed("topics", "delete", "-b", bootstrap, "ord", home=tmp_path, shell="bash")
        assert found == ["orders"]


def test_completion_without_a_cluster_is_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)
    nowhere = ("--bootstrap", f"127.0.0.1:{free_port()}", "")
    for words in (("topics", "delete"), ("groups", "describe"), ("txns", "abort"), ("configs", "describe", "group")):
        assert names(*words, *nowhere) == [], words
    assert names("topics", "delete", "--dir", str(tmp_path / "absent"), "") == []
    assert names("topics", "delete", "--command-config", str(tmp_path / "absent"), "") == []
    assert names("start", "") == []


async def test_completion_ends_if_the_broker_does_not_respond(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # the kernel accepts the connection
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        assert await completed("topics", "delete", "-b", address, "", home=tmp_path, timeout_s=0.2) == []


def test_words_of_bash_are_joined_at_its_breaks() -> None:
    assert joined(["odradek", "-b", "a", ":", "1,b", ":", "2", "t"]) == ["odradek", "-b", "a:1,b:2", "t"]
    assert joined(["odradek", "--dir", "=", "x", "t", ":"]) == ["odradek", "--dir=x", "t:"]


def test_time_of_a_completion_is_bounded() -> None:
    assert completion.TIMEOUT_S <= 1.0
