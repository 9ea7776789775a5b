"""Authorizer that the configuration of a node selects."""

from odradek.broker.config.authorization import super_users
from odradek.broker.config.properties import Config
from odradek.broker.security.authorizer import AllowAll
from odradek.cluster.authorization.standard import StandardAuthorizer
from odradek.cluster.authorizer import Authorizer
from odradek.cluster.metadata.cache import MetadataCache


def authorizer_of(config: Config, metadata: MetadataCache) -> Authorizer:
    """Return the authorizer that the configuration selects. It follows the ACLs of `metadata`."""
    if not config.authorizer_class_name:
        return AllowAll()
    authorizer = StandardAuthorizer(super_users(config), allow_if_no_acl=config.allow_everyone_if_no_acl_found)
    metadata.prepare_snapshots(authorizer.prepare)
    metadata.subscribe(authorizer.on_metadata)
    return authorizer
