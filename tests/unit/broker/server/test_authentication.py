"""The salts of unknown SCRAM users after a restart."""

from pathlib import Path
from random import Random

import pytest

from odradek.broker.process.clock import SystemClock
from odradek.broker.process.env import Env
from odradek.broker.server.authentication import authentication_of, start_authentication
from odradek.cluster.metadata.cache import MetadataCache
from odradek.protocol.sasl.cluster_secret import ClusterSecret
from odradek.protocol.sasl.scram import SCRAM_SHA_256
from odradek.runtime.tasks import Tasks
from odradek.storage.data_directory.directory import DataDirectory
from odradek.storage.disk.os_disk import OsDisk
from tests.support.broker_context import config

SECRET = ClusterSecret(bytes(range(32)), Random(1).getrandbits)


def salt_of_unknown_user(path: Path, seed: int, secret: ClusterSecret | None) -> bytes:
    """Return the salt that a start of a node in this data directory uses. `seed` is that of its random numbers."""
    made = config(
        f"log.dirs={path}",
        "listeners=CLIENTS://127.0.0.1:0,INTERNAL://127.0.0.1:0",
        "listener.security.protocol.map=CLIENTS:SASL_PLAINTEXT,INTERNAL:PLAINTEXT",
        "inter.broker.listener.name=INTERNAL",
        "sasl.enabled.mechanisms=SCRAM-SHA-256",
    )
    env = Env(OsDisk(), SystemClock(), Random(seed), "boot")
    authentication = authentication_of(made, env, MetadataCache(), secret)
    directory = DataDirectory(env.disk, str(path))
    start_authentication(authentication, env, Tasks(lambda *_: None), directory)
    return authentication.mechanisms.decoys.credential(SCRAM_SHA_256, "unknown").salt


@pytest.mark.parametrize("secret", [None, SECRET])
def test_salt_of_an_unknown_user_stays_after_a_restart(tmp_path: Path, secret: ClusterSecret | None) -> None:
    first = salt_of_unknown_user(tmp_path, 1, secret)
    assert salt_of_unknown_user(tmp_path, 2, secret) == first
    (tmp_path / "other").mkdir()
    other = salt_of_unknown_user(tmp_path / "other", 3, secret)
    assert (other == first) is (secret is not None)
    assert (tmp_path / "odradek.decoys").exists() is (secret is None)
