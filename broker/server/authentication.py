"""Authentication by SASL that the configuration of a node selects."""

from functools import partial

from odradek.broker.config.controller import token_rules
from odradek.broker.config.properties import Config
from odradek.broker.config.sasl import parse_sasl
from odradek.broker.process.env import Env
from odradek.broker.security.authentication import Authentication
from odradek.broker.security.mechanisms import Mechanisms, scram_account
from odradek.broker.security.token_credentials import TokenCredentials
from odradek.cluster.metadata.cache import MetadataCache
from odradek.protocol.sasl.cluster_secret import ClusterSecret
from odradek.protocol.sasl.scram import Decoys
from odradek.runtime.tasks import Tasks
from odradek.storage.data_directory.directory import DataDirectory
from odradek.storage.disk.port import Disk
from odradek.storage.files.checkpoint import DECOYS


def authentication_of(
    config: Config, env: Env, metadata: MetadataCache, secret: ClusterSecret | None
) -> Authentication:
    """Return the logins of all listeners. The users and the tokens of SCRAM are those of `metadata`."""
    mechanisms = Mechanisms(
        node_id=config.node_id,
        random_bits=env.rng.getrandbits,
        account_of=partial(scram_account, metadata),
        settings=parse_sasl(config),
        secret=secret,
    )
    rules = token_rules(config)
    if rules.enabled and mechanisms.scram:
        mechanisms.tokens = TokenCredentials(rules, metadata, mechanisms.scram, mechanisms.decoys, env.clock.wall_ms)
    return Authentication(mechanisms, env.clock, failure_delay_ms=config.connection_failed_authentication_delay_ms)


def start_authentication(authentication: Authentication, env: Env, tasks: Tasks, directory: DataDirectory) -> None:
    """Compute the credentials of delegation tokens, and read the keys of OAuth providers, from now on.

    The node has claimed `directory`. Raise OSError.
    """
    mechanisms = authentication.mechanisms
    if mechanisms.secret is None and mechanisms.scram:
        _keep_decoys(mechanisms.decoys, env.disk, directory.path_of(DECOYS))
    if mechanisms.tokens is not None:
        tasks.spawn(mechanisms.tokens.run(env.disk.with_own_thread().in_thread), "credentials of delegation tokens")
    tokens = {name: settings.tokens for name, settings in mechanisms.settings.items() if settings.tokens}
    if not tokens:
        return
    # Imported here: a node without OAUTHBEARER runs without the library PyJWT.
    from odradek.broker.security.jwks import Jwks, read_document
    from odradek.broker.security.token_validator import TokenValidator

    disk = env.disk.with_own_thread()  # the server of the document can be slow
    for listener, settings in tokens.items():
        keys = Jwks(settings.jwks_url, settings.refresh_ms, partial(read_document, disk.read_file), disk.in_thread)
        mechanisms.validators[listener] = TokenValidator(settings.rules, keys.key, env.clock.wall_ms).validate
        tasks.spawn(keys.run(), f"read the JWKS document of {listener}")


def _keep_decoys(decoys: Decoys, disk: Disk, path: str) -> None:
    """Use the key of the decoys that an earlier start has stored, or store the key of this start.

    Otherwise a restart would change the salt of an unknown user, and not that of a known user.
    """
    if disk.exists(path):
        decoys.key = disk.read_file(path)
    else:
        disk.replace_file_now(path, decoys.key)
