"""Facts that a user without ACLs may not learn from responses."""

from __future__ import annotations

from random import Random

from odradek.protocol.codec import decode, encode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages import request_class
from odradek.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from odradek.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from odradek.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from tests.chaos.snooping import Names, Probe, fake, learnt, make_probe

NAMES = Names(("chaos-in", "chaos-out"), ("java-classic",), ("tx-java-1",), ("chaos-writer",))
DENIED = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
PROBE = Probe(DescribeGroupsRequest(["java-classic"]), 5, "java-classic", DescribeGroupsRequest(["java-classi_"]))


def described(group: str, error: int) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(groups=[DescribedGroup(error, None, group)])


def test_equal_refusals_of_an_existing_and_a_missing_name_reveal_nothing() -> None:
    missing = described("java-classi_", DENIED)
    missing.throttle_time_ms = 7  # depends on the load
    assert learnt(PROBE, described("java-classic", DENIED), missing, NAMES) == []


def test_other_error_for_an_existing_name_is_a_fact() -> None:
    found = learnt(PROBE, described("java-classic", DENIED), described("java-classi_", 0), NAMES)
    assert found == ["DescribeGroups distinguishes 'java-classic' from a name that does not exist"]


def test_name_that_the_request_does_not_contain_is_a_fact() -> None:
    response = ListGroupsResponse(groups=[ListedGroup("java-classic", "consumer")])
    found = learnt(Probe(ListGroupsRequest(), 4), response, None, NAMES)
    assert found == ["ListGroups showed the name 'java-classic'"]


def test_record_is_a_fact() -> None:
    probe = Probe(FetchRequest(), 12, "chaos-in")
    topic = FetchableTopicResponse("chaos-in", partitions=[PartitionData(0, records=b"batch")])
    assert learnt(probe, FetchResponse(responses=[topic]), None, NAMES) == ["Fetch showed records of chaos-in"]


def test_each_question_can_be_encoded_and_its_missing_name_differs() -> None:
    rng = Random(1)
    for _ in range(300):
        probe = make_probe(rng, NAMES)
        encoded = encode(probe.request, probe.version)
        assert isinstance(decode(request_class(probe.request.API_KEY), probe.version, encoded), type(probe.request))
        if probe.name is not None:
            assert probe.missing is not None
            other = encode(probe.missing, probe.version)
            assert other == encoded.replace(probe.name.encode(), fake(probe.name).encode()) != encoded
