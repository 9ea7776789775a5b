"""DescribeAcls, CreateAcls and DeleteAcls where nothing obeys access control lists."""

from typing import Any

import pytest

from odradek.broker.apis import create_acls, delete_acls, describe_acls
from odradek.cluster.authorizer import AclOperation
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from odradek.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from odradek.protocol.messages.describe_acls import DescribeAclsRequest
from tests.support import broker_context
from tests.support.broker_context import Deny, image

E = ErrorCode
ASKED = [
    (describe_acls, DescribeAclsRequest(), AclOperation.DESCRIBE),
    (create_acls, CreateAclsRequest([AclCreation(), AclCreation()]), AclOperation.ALTER),
    (delete_acls, DeleteAclsRequest([DeleteAclsFilter(), DeleteAclsFilter()]), AclOperation.ALTER),
]


@pytest.mark.parametrize(("api", "request_", "operation"), ASKED)
def test_they_are_disabled_and_who_may_not_ask_does_not_hear_it(
    api: Any, request_: Any, operation: AclOperation
) -> None:
    nobody = Deny((operation, "kafka-cluster"))
    for context, error in (
        (broker_context.context(3, image()), E.SECURITY_DISABLED),
        (broker_context.context(3, image(), authorizer=nobody), E.CLUSTER_AUTHORIZATION_FAILED),
    ):
        with pytest.raises(Refusal) as refused:
            api.handle(context, request_)
        assert refused.value.error is error


def test_each_that_was_asked_for_is_answered() -> None:
    context = broker_context.context(3, image())
    described, created, deleted = (api.refuse(context, asked, E.SECURITY_DISABLED, "none") for api, asked, _ in ASKED)
    assert (described.error_code, described.error_message, described.resources) == (E.SECURITY_DISABLED, "none", [])
    for results in (created.results, deleted.filter_results):
        assert [(each.error_code, each.error_message) for each in results] == [(E.SECURITY_DISABLED, "none")] * 2
