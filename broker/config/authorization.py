"""Super users of a node's configuration."""

from odradek.broker.config.properties import Config
from odradek.broker.config.property import ConfigError


def super_users(config: Config) -> tuple[str, ...]:
    """Return the principals in super.users, as text. Raise ConfigError if one has no type."""
    users = tuple(user for each in config.super_users.split(";") if (user := each.strip()))
    for user in users:
        if ":" not in user:
            raise ConfigError(f"super.users: {user!r} has no type; write it as User:{user}")
    return users
