"""Super users, and the identity that nodes need if there is an authorizer."""

import pytest

from odradek.broker.config.authorization import require_identity_of_nodes, super_users
from odradek.broker.config.property import ConfigError
from tests.support.broker_context import config

AUTHORIZER = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"
OTHERS = "controller.quorum.voters=1@localhost:1,2@localhost:2"


@pytest.mark.parametrize(
    ("mode", "users", "others", "is_refused"),
    [
        ("none", "User:admin", OTHERS, True),
        ("accept", "", OTHERS, True),
        ("none", "User:admin; User:ANONYMOUS", OTHERS, False),
        ("none", "", "controller.quorum.voters=1@localhost:1", False),
        ("login", "", OTHERS, False),
        ("required", "", OTHERS, False),
    ],
)
def test_nodes_without_login_need_anonymous_as_a_super_user(
    mode: str, users: str, others: str, is_refused: bool
) -> None:
    settings = (f"odradek.inter.broker.authentication={mode}", f"super.users={users}", others)
    require_identity_of_nodes(config(*settings))
    if not is_refused:
        require_identity_of_nodes(config(AUTHORIZER, *settings))
        return
    with pytest.raises(ConfigError, match="User:ANONYMOUS is missing"):
        require_identity_of_nodes(config(AUTHORIZER, *settings))


def test_super_users_are_separated_by_semicolons_and_have_a_type() -> None:
    assert super_users(config("super.users= User:a ;;User:CN=b,OU=c;")) == ("User:a", "User:CN=b,OU=c")
    with pytest.raises(ConfigError, match="write it as User:admin"):
        config("super.users=admin")


def test_only_the_standard_authorizer_is_known() -> None:
    with pytest.raises(ConfigError, match="is not one of"):
        config("authorizer.class.name=kafka.security.authorizer.AclAuthorizer")
