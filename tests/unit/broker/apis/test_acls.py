"""DescribeAcls, CreateAcls and DeleteAcls: refused, because the broker has no authorizer."""

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
CASES = [
    (describe_acls, DescribeAclsRequest(), AclOperation.DESCRIBE),
    (create_acls, CreateAclsRequest([AclCreation(), AclCreation()]), AclOperation.ALTER),
    (delete_acls, DeleteAclsRequest([DeleteAclsFilter(), DeleteAclsFilter()]), AclOperation.ALTER),
]


@pytest.mark.parametrize(("api", "request_", "operation"), CASES)
def test_acl_requests_are_refused_as_disabled_or_unauthorized(api: Any, request_: Any, operation: AclOperation) -> None:
    authorizer = Deny((operation, "kafka-cluster"))
    for context, error in (
        (broker_context.context(3, image()), E.SECURITY_DISABLED),
        (broker_context.context(3, image(), authorizer=authorizer), E.CLUSTER_AUTHORIZATION_FAILED),
    ):
        with pytest.raises(Refusal) as refused:
            api.handle(context, request_)
        assert refused.value.error is error


def test_each_creation_and_filter_has_its_own_result() -> None:
    context = broker_context.context(3, image())
    described, created, deleted = (
        api.refuse(context, request, E.SECURITY_DISABLED, "none") for api, request, _ in CASES
    )
    assert (described.error_code, described.error_message, described.resources) == (E.SECURITY_DISABLED, "none", [])
    for results in (created.results, deleted.filter_results):
        assert [(result.error_code, result.error_message) for result in results] == [(E.SECURITY_DISABLED, "none")] * 2
