"""Requests of a logged-in user without ACLs, and the check that it learns nothing from their responses.

A request with a name of another tenant must have the same response as one with a name that does not exist. No response
may contain a name that the request does not contain, or a record.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from odradek.protocol.codec import encode
from odradek.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from odradek.protocol.messages.describe_acls import DescribeAclsRequest
from odradek.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from odradek.protocol.messages.describe_groups import DescribeGroupsRequest
from odradek.protocol.messages.describe_transactions import DescribeTransactionsRequest
from odradek.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from odradek.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from odradek.protocol.messages.list_groups import ListGroupsRequest
from odradek.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.protocol.messages.list_transactions import ListTransactionsRequest
from odradek.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

if TYPE_CHECKING:
    from random import Random

    from odradek.protocol.schema import Message

TOPIC_CONFIGS: Final = 2
"""Resource type of a topic in DescribeConfigs."""
ANY: Final = 1
"""Code of a filter of ACLs that matches each value."""
FETCH_BYTES: Final = 1 << 16


@dataclass(frozen=True)
class Names:
    """Names that other tenants use: topics, groups, transactional ids and users."""

    topics: tuple[str, ...]
    groups: tuple[str, ...]
    transactional_ids: tuple[str, ...]
    users: tuple[str, ...]

    @property
    def all(self) -> tuple[str, ...]:
        return (*self.topics, *self.groups, *self.transactional_ids, *self.users)


@dataclass(frozen=True)
class Probe:
    """A request in a version, and the same request with a name that does not exist. `name` is None if it has none."""

    request: Message
    version: int
    name: str | None = None
    missing: Message | None = None


def fake(name: str) -> str:
    """Return a name of the same length that does not exist."""
    return name[:-1] + "_"


def make_probe(rng: Random, names: Names) -> Probe:
    """Return one probe."""
    kinds = (_topic, _group, _identifier, _listing)
    return rng.choice(kinds)(rng, names)


def _topic(rng: Random, names: Names) -> Probe:
    name, partition = rng.choice(names.topics), rng.randrange(3)

    def metadata(topic: str) -> Message:
        return MetadataRequest([MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)

    def offsets(topic: str) -> Message:
        return ListOffsetsRequest(topics=[ListOffsetsTopic(topic, [ListOffsetsPartition(partition, timestamp=-1)])])

    def fetch(topic: str) -> Message:
        wanted = FetchPartition(partition, fetch_offset=0, partition_max_bytes=FETCH_BYTES)
        return FetchRequest(max_wait_ms=0, session_epoch=-1, topics=[FetchTopic(topic, partitions=[wanted])])

    def configs(topic: str) -> Message:
        return DescribeConfigsRequest([DescribeConfigsResource(TOPIC_CONFIGS, topic, None)])

    make, version = rng.choice(((metadata, 9), (offsets, 5), (fetch, 12), (fetch, 12), (configs, 4)))
    return Probe(make(name), version, name, make(fake(name)))


def _group(rng: Random, names: Names) -> Probe:
    name = rng.choice(names.groups)

    def described(group: str) -> Message:
        return DescribeGroupsRequest([group])

    def consumer_described(group: str) -> Message:
        return ConsumerGroupDescribeRequest([group])

    def offsets(group: str) -> Message:
        return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=None)])

    make, version = rng.choice(((described, 5), (consumer_described, 0), (offsets, 8)))
    return Probe(make(name), version, name, make(fake(name)))


def _identifier(rng: Random, names: Names) -> Probe:
    name = rng.choice(names.transactional_ids)
    missing = DescribeTransactionsRequest([fake(name)])
    return Probe(DescribeTransactionsRequest([name]), 0, name, missing)


def _listing(rng: Random, _names: Names) -> Probe:
    request: Message
    request, version = rng.choice(
        (
            (MetadataRequest(None), 9),
            (ListGroupsRequest(), 4),
            (ListTransactionsRequest(), 0),
            (DescribeAclsRequest(ANY, None, ANY, None, None, ANY, ANY), 2),
            (DescribeUserScramCredentialsRequest(None), 0),
        )
    )
    return Probe(request, version)


def learnt(probe: Probe, response: Message, missing_response: Message | None, names: Names) -> list[str]:
    """Return one line for each fact that the responses reveal."""
    api = type(response).__name__.removesuffix("Response")
    found = []
    content = _bytes(response, probe.version)
    request = encode(probe.request, probe.version)
    for name in names.all:
        text = name.encode()
        if text in content and text not in request and (probe.name is None or name not in probe.name):
            found.append(f"{api} showed the name {name!r}")
    if isinstance(response, FetchResponse):
        found += [
            f"Fetch showed records of {probe.name}"
            for topic in response.responses
            for partition in topic.partitions
            if partition.records
        ][:1]
    if missing_response is not None and probe.name is not None:
        other = _bytes(missing_response, probe.version).replace(fake(probe.name).encode(), probe.name.encode())
        if other != content:
            found.append(f"{api} distinguishes {probe.name!r} from a name that does not exist")
    return found


def _bytes(response: Message, version: int) -> bytes:
    """Return the encoded response, without the time of a quota, which depends on the load."""
    if hasattr(response, "throttle_time_ms"):
        response.throttle_time_ms = 0
    return encode(response, version)
