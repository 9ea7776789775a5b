"""kafka-delegation-tokens, clients with a token, and `odradek tokens`: against Odradek and Apache Kafka."""

from __future__ import annotations

import json
import re
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import pytest
from typer.testing import CliRunner

from odradek.commands.application import app
from tests.support.kafka_broker import KafkaBroker
from tests.support.single_broker import SingleBroker
from tests.support.tool_comparison import comparable_lines
from tests.support.tool_jvm import tool_jvm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.tool_jvm import Finished

pytestmark = [pytest.mark.interop, pytest.mark.full, pytest.mark.timeout(600)]
MODULES: Final = "org.apache.kafka.common.security"
USERS: Final = ("admin", "alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi", "ivan", "judy")
"""Users. No two tests have the same one, except for admin."""
KEY: Final = "secret key of the tokens"
LISTENER: Final = {"CLIENTS": "SASL_PLAINTEXT"}
SETTINGS: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin;User:ANONYMOUS",
    "delegation.token.secret.key": KEY,
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.clients.plain.sasl.jaas.config": (
        f"{MODULES}.plain.PlainLoginModule required " + " ".join(f'user_{name}="{name}"' for name in USERS) + ";"
    ),
    "listener.name.clients.scram-sha-256.sasl.jaas.config": f"{MODULES}.scram.ScramLoginModule required;",
    "listener.name.clients.scram-sha-512.sasl.jaas.config": f"{MODULES}.scram.ScramLoginModule required;",
}
HMAC: Final = re.compile(r"(?<![\w+/])[\w+/]{86}==")
TOKEN: Final = re.compile(r"([\w-]{22})\s+([\w+/]{86}==)")
DATE: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d")
ATTEMPTS: Final = 50
OF_ALICE: Final = ("--describe", "--owner-principal", "User:alice")


class Pair:
    """Both brokers, the files of their clients, and one token of each broker."""

    def __init__(self, directory: Path, addresses: dict[str, str], plain: dict[str, str]) -> None:
        self.directory = directory
        self.addresses = addresses
        self.plain = plain
        self.tokens: dict[str, tuple[str, str]] = {}
        """Id and HMAC of the token that `{id}` and `{hmac}` stand for, by broker."""
        self.files = {
            user: self._file(user, "PLAIN", f'plain.PlainLoginModule required username="{user}" password="{user}"')
            for user in USERS
        }

    def _file(self, name: str, mechanism: str, module: str) -> str:
        rows = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f"{MODULES}.{module};",
        }
        file = self.directory / f"{name}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in rows.items()))
        return str(file)

    def token_file(self, broker: str, mechanism: str = "SCRAM-SHA-512") -> str:
        """Return the properties of a client that logs in by the token."""
        token_id, hmac = self.tokens[broker]
        module = f'scram.ScramLoginModule required username="{token_id}" password="{hmac}" tokenauth="true"'
        return self._file(f"token-{broker}", mechanism, module)

    def run(self, broker: str, tool: str, config: str, *arguments: str, stdin: str = "") -> Finished:
        token_id, hmac = self.tokens.get(broker, ("", ""))
        words = (argument.replace("{id}", token_id).replace("{hmac}", hmac) for argument in arguments)
        common = ("--bootstrap-server", self.addresses[broker], "--command-config", config)
        return tool_jvm().run(tool, *common, *words, stdin=stdin)

    def until(self, broker: str, tool: str, config: str, *arguments: str) -> None:
        """Repeat a tool until it succeeds. `config` is a user, or a file of client properties."""
        for _ in range(ATTEMPTS):
            finished = self.run(broker, tool, self.files.get(config, config), *arguments)
            if finished.returncode == 0:
                return
        raise AssertionError(finished)

    def tokens_tool(self, user: str, *arguments: str) -> dict[str, Finished]:
        return {
            broker: self.run(broker, "kafka-delegation-tokens", self.files[user], *arguments)
            for broker in self.addresses
        }

    def same(self, user: str, *arguments: str) -> list[str]:
        """Assert that both brokers lead to the same output of kafka-delegation-tokens, and return it."""
        outputs = {broker: lines_of(finished) for broker, finished in self.tokens_tool(user, *arguments).items()}
        assert outputs["odradek"] == outputs["kafka"]
        return outputs["kafka"]

    def same_until(self, ready: Callable[[list[str]], bool], user: str, *arguments: str) -> list[str]:
        """Repeat until both outputs are ready and equal. The repetition must not have an effect.

        A change reaches the metadata of a broker with a delay. Kafka's controller also decides on delayed metadata.
        """
        for _ in range(ATTEMPTS):
            found = [lines_of(finished) for finished in self.tokens_tool(user, *arguments).values()]
            if all(map(ready, found)) and found[0] == found[1]:
                return found[0]
        raise AssertionError(found)

    def create(self, user: str, *arguments: str) -> list[str]:
        """Create a token on both brokers, and select it."""
        finished = self.tokens_tool(user, "--create", "--max-life-time-period", "-1", *arguments)
        for broker, one in finished.items():
            found = TOKEN.search(one.stdout)
            assert found is not None, one
            self.tokens[broker] = (found[1], found[2])
        outputs = {broker: lines_of(one) for broker, one in finished.items()}
        assert outputs["odradek"] == outputs["kafka"]
        return outputs["kafka"]


def lines_of(finished: Finished) -> list[str]:
    """Return exit code and lines of an output, with replaced ids, HMACs and times, ordered."""
    text = DATE.sub("DATE", HMAC.sub("HMAC", f"{finished.stdout}\n{finished.stderr}"))
    return [f"exit {finished.returncode}", *sorted(comparable_lines(text))]


def succeeded(lines: list[str]) -> bool:
    return lines[0] == "exit 0"


def failed(error: str) -> Callable[[list[str]], bool]:
    """Return a function that returns True for an output with this exception."""
    return lambda lines: any(error in line for line in lines)


def count(lines: list[str]) -> int:
    """Return the number of tokens in a list."""
    return sum("DATE DATE DATE" in line for line in lines)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    directory = tmp_path_factory.mktemp("tokens")
    with ExitStack() as undo:
        odradek = undo.enter_context(SingleBroker(directory / "odradek", LISTENER, SETTINGS))
        kafka = undo.enter_context(KafkaBroker(directory / "kafka", overrides=SETTINGS, listeners=LISTENER))
        addresses = {"odradek": odradek.addresses["CLIENTS"], "kafka": f"127.0.0.1:{kafka.ports['CLIENTS']}"}
        pair = Pair(directory, addresses, {"odradek": odradek.plain, "kafka": kafka.bootstrap})
        yield pair
        log = odradek.log()
        assert KEY not in log
        assert not [hmac for _, hmac in pair.tokens.values() if hmac in log]


@pytest.mark.feature("kafka-delegation-tokens: create, describe, renew, expire", client="Kafka's tools 4.3")
def test_token_is_created_described_renewed_and_expired(both: Pair) -> None:
    both.create("alice", "--renewer-principal", "User:bob")
    assert count(both.same_until(lambda lines: count(lines) == 1, "alice", *OF_ALICE)) == 1
    assert count(both.same("bob", *OF_ALICE)) == 1
    assert count(both.same("carol", *OF_ALICE)) == 0
    assert count(both.same("alice", "--describe", "--owner-principal", "User:bob")) == 1  # bob may renew it
    assert count(both.same("alice", "--describe")) == 0  # without owners, the tool requests those of no owner
    assert count(both.same("alice", "--describe", "--owner-principal", "User:carol")) == 0
    both.same_until(succeeded, "bob", "--renew", "--renew-time-period", "-1", "--hmac", "{hmac}")
    assert both.same("alice", "--renew", "--renew-time-period", "3600000", "--hmac", "{hmac}")[0] == "exit 0"
    for command in (("--renew", "--renew-time-period", "-1"), ("--expire", "--expiry-time-period", "-1")):
        mismatch = failed("DelegationTokenOwnerMismatchException")
        assert mismatch(both.same("admin", *command, "--hmac", "{hmac}"))
        # carol may not list the token. Apache Kafka reveals that it exists.
        refused = both.tokens_tool("carol", *command, "--hmac", "{hmac}")
        assert mismatch(lines_of(refused["kafka"]))
        assert failed("DelegationTokenNotFoundException")(lines_of(refused["odradek"]))
    assert both.same("bob", "--expire", "--expiry-time-period", "600000", "--hmac", "{hmac}")[0] == "exit 0"
    assert both.same("alice", "--expire", "--expiry-time-period", "-1", "--hmac", "{hmac}")[0] == "exit 0"
    both.same_until(lambda lines: count(lines) == 0, "alice", *OF_ALICE)
    not_found = failed("DelegationTokenNotFoundException")
    both.same_until(not_found, "alice", "--expire", "--expiry-time-period", "-1", "--hmac", "{hmac}")
    assert not_found(both.same("alice", "--renew", "--renew-time-period", "-1", "--hmac", "{hmac}"))


def test_token_expires(both: Pair) -> None:
    both.create("dave")
    both.same_until(lambda lines: count(lines) == 1, "dave", "--describe", "--owner-principal", "User:dave")
    both.same_until(succeeded, "dave", "--renew", "--renew-time-period", "-1", "--hmac", "{hmac}")
    assert both.same("dave", "--expire", "--expiry-time-period", "0", "--hmac", "{hmac}")[0] == "exit 0"
    expired = failed("DelegationTokenExpiredException")
    both.same_until(expired, "dave", "--expire", "--expiry-time-period", "0", "--hmac", "{hmac}")
    assert expired(both.same("dave", "--renew", "--renew-time-period", "-1", "--hmac", "{hmac}"))
    # A login by an expired token succeeds in Apache Kafka until its removal, but the session expires immediately, so
    # that the tool repeats it for a minute.
    refused = both.run("odradek", "kafka-delegation-tokens", both.token_file("odradek"), "--describe")
    assert "due to invalid credentials with SASL mechanism SCRAM-SHA-512" in refused.stderr + refused.stdout
    both.same("dave", "--expire", "--expiry-time-period", "-1", "--hmac", "{hmac}")
    both.same_until(lambda lines: count(lines) == 0, "dave", "--describe", "--owner-principal", "User:dave")


def test_tokens_of_other_owners_need_acls(both: Pair) -> None:
    owner = ("--owner-principal", "User:erin")
    refused = both.same("grace", "--create", "--max-life-time-period", "-1", *owner)
    assert failed("DelegationTokenAuthorizationException")(refused)
    for operation, principal in (("CreateTokens", "User:grace"), ("DescribeTokens", "User:frank")):
        for broker in both.addresses:
            acl = ("--add", "--allow-principal", principal, "--operation", operation, "--user-principal", "User:erin")
            assert both.run(broker, "kafka-acls", both.files["admin"], *acl).returncode == 0
    for broker in both.addresses:
        both.until(broker, "kafka-delegation-tokens", "grace", "--create", "--max-life-time-period", "-1", *owner)
    both.create("grace", *owner)
    for user in ("erin", "frank", "admin"):
        both.same_until(lambda lines: count(lines) == 2, user, "--describe", *owner)
    assert count(both.same("grace", "--describe", *owner)) == 2  # it has created them
    mismatch = failed("DelegationTokenOwnerMismatchException")
    both.same_until(mismatch, "grace", "--renew", "--renew-time-period", "-1", "--hmac", "{hmac}")


@pytest.mark.feature("kafka-console-producer, -consumer: login by a delegation token", client="Kafka's tools 4.3")
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_producer_and_consumer_log_in_by_a_token(both: Pair, mechanism: str) -> None:
    topic = f"tokens-{mechanism}"
    both.create("heidi")
    both.same_until(lambda lines: count(lines) >= 1, "heidi", "--describe", "--owner-principal", "User:heidi")
    for broker in both.addresses:
        for kind, operations in (("--topic", ("All",)), ("--group", ("Read",))):
            words = [word for operation in operations for word in ("--operation", operation)]
            acl = ("--add", "--allow-principal", "User:heidi", *words, kind, topic)
            assert both.run(broker, "kafka-acls", both.files["admin"], *acl).returncode == 0
        config = both.token_file(broker, mechanism)
        both.until(broker, "kafka-topics", config, "--create", "--if-not-exists", "--topic", topic)
        both.until(broker, "kafka-topics", config, "--describe", "--topic", topic)
        written = both.run(broker, "kafka-console-producer", config, "--topic", topic, stdin="one\ntwo\n")
        assert written.returncode == 0, written
        read = both.run(
            broker,
            "kafka-console-consumer",
            config,
            *("--topic", topic, "--group", topic, "--from-beginning", "--max-messages", "2"),
        )
        assert (read.returncode, read.stdout.split()) == (0, ["one", "two"]), read
    found = {
        broker: lines_of(both.run(broker, "kafka-delegation-tokens", both.token_file(broker, mechanism), "--describe"))
        for broker in both.addresses
    }
    assert found["odradek"] == found["kafka"]
    assert any("not allowed" in line for line in found["kafka"])


def test_requests_on_plaintext_are_refused_alike(both: Pair) -> None:
    found = [
        lines_of(tool_jvm().run("kafka-delegation-tokens", "--bootstrap-server", address, *words))
        for words in (("--describe",), ("--create", "--max-life-time-period", "-1"))
        for address in both.plain.values()
    ]
    assert found[0] == found[1]
    assert found[2] == found[3]


@pytest.mark.parametrize("broker", ["odradek", "kafka"])
def test_command_manages_tokens_by_their_ids(both: Pair, broker: str) -> None:
    def command(user: str, *words: str) -> tuple[int, str]:
        options = ("--bootstrap", both.addresses[broker], "--command-config", both.files[user])
        finished = CliRunner().invoke(app, ["tokens", *words, *options])
        return finished.exit_code, finished.output

    code, text = command("ivan", "create", "--renewer", "judy", "--max-lifetime", "3600000", "--json")
    assert code == 0, text
    created = json.loads(text)
    token_id = created["token_id"]
    assert HMAC.fullmatch(created["hmac"])
    for _ in range(ATTEMPTS):
        code, text = command("judy", "list", "--owner", "ivan", "--json")
        if token_id in text:
            break
    (row,) = [row for row in json.loads(text) if row["token_id"] == token_id]
    assert (row["owner"], row["renewers"], "hmac" in row) == ("User:ivan", ["User:judy"], False)
    code, text = command("judy", "list")
    assert token_id in text
    assert created["hmac"] not in text
    for _ in range(ATTEMPTS):
        code, text = command("judy", "renew", token_id, "--period", "60000")
        if code == 0:
            break
    assert (code, text.startswith(f"renewed: {token_id}, expires 20")) == (0, True), text
    code, text = command("ivan", "expire", token_id, "--period", "30000")
    assert (code, text.startswith(f"changed: {token_id}, expires 20")) == (0, True), text
    assert command("ivan", "expire", token_id) == (0, f"removed: {token_id}\n")
    for _ in range(ATTEMPTS):
        code, text = command("judy", "renew", token_id)
        if code == 2:
            break
    assert (code, f"token {token_id}: it does not exist" in " ".join(text.split())) == (2, True)
    code, text = command("ivan", "create")
    assert [line.split(": ")[0] for line in text.splitlines()] == ["token", "hmac", "owner", "expires"]
