"""DescribeConfigs: v1-v4

Behavior:
* Topics, groups and brokers (this broker by its id, or all brokers by an empty name). Every property that is obeyed is listed,
  with where its value comes from, and on request with the values it hides and its documentation.
* A topic that does not exist: UNKNOWN_TOPIC_OR_PARTITION. Loggers of brokers and metrics of clients have no settings
  here: INVALID_REQUEST, saying so.

Version notes:
* v3: types and documentation (KIP-569)
"""

from collections.abc import Mapping
from itertools import dropwhile
from typing import Final

from odradek.broker.config.groups import GROUP_PROPERTIES
from odradek.broker.config.property import Property, Scope
from odradek.broker.config.requests import check_kind, check_right
from odradek.broker.config.topics import (
    BROKER_PROPERTIES,
    TOPIC_PROPERTIES,
    Source,
    Synonym,
    TopicSettings,
    broker_synonyms,
    source_of,
)
from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.requests.api import Api
from odradek.cluster.authorizer import AclOperation
from odradek.cluster.controller.partitions.topics import invalid_name
from odradek.cluster.metadata.image import RESOURCE_BROKER, RESOURCE_GROUP, RESOURCE_TOPIC
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


def handle(context: BrokerRequestContext, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(results=[_resource(context, request, resource) for resource in request.resources])


def _resource(
    context: BrokerRequestContext, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    try:
        check_right(context, AclOperation.DESCRIBE_CONFIGS, resource.resource_type, resource.resource_name)
        check_kind(resource.resource_type)
        if resource.resource_type == RESOURCE_TOPIC:
            configs = _topic(context, request, resource.resource_name)
        elif resource.resource_type == RESOURCE_BROKER:
            configs = _broker(context, request, resource.resource_name)
        elif resource.resource_type == RESOURCE_GROUP:
            configs = _group(context, request, resource.resource_name)
        else:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource.resource_type}")
    except Refusal as refusal:
        return _refused(resource, refusal.error, refusal.message)
    keys = None if resource.configuration_keys is None else dict.fromkeys(resource.configuration_keys)
    return DescribeConfigsResult(
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[config for config in configs if keys is None or config.name in keys],
    )


def _topic(
    context: BrokerRequestContext, request: DescribeConfigsRequest, name: str
) -> list[DescribeConfigsResourceResult]:
    reason = invalid_name(name)
    if reason is not None:
        raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")
    image = context.node.metadata.image
    if image.topic(name) is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    settings: TopicSettings = context.node.topic_settings
    given = image.topic_config(name)
    return [
        _entry(request, prop, key, settings.text(key, given), _shown(prop, settings.synonyms(key, given)))
        for key, prop in TOPIC_PROPERTIES.items()
    ]


def _shown(prop: Property, synonyms: list[Synonym]) -> list[Synonym]:
    """As Kafka tells them: where a coarser unit speaks (log.retention.hours), it is not named before the property itself."""
    own = [each for each in synonyms if each.source is Source.TOPIC]
    return own + list(dropwhile(lambda each: each.name != prop.name, synonyms[len(own) :]))


def _broker(
    context: BrokerRequestContext, request: DescribeConfigsRequest, name: str
) -> list[DescribeConfigsResourceResult]:
    defaults = context.node.metadata.image.config(RESOURCE_BROKER, "")
    if not name:
        return [_entry(request, prop, prop.name, text, [dynamic]) for prop, text, dynamic in _dynamic(defaults)]
    if name != str(context.node.node_id):
        message = f"Unexpected broker id, expected {context.node.node_id} or empty string, but received {name}"
        raise Refusal(ErrorCode.INVALID_REQUEST, message)
    config, settings = context.node.config, context.node.topic_settings
    entries = []
    for prop in BROKER_PROPERTIES.values():
        synonyms = [*settings.dynamic_synonyms(prop), *broker_synonyms(config, prop)]
        if synonyms or prop.has_default:
            value = prop.render(prop.parse(synonyms[0].value)) if synonyms else None
            entries.append(_entry(request, prop, prop.name, value, synonyms))
    return entries


def _group(
    context: BrokerRequestContext, request: DescribeConfigsRequest, name: str
) -> list[DescribeConfigsResourceResult]:
    if not name:
        raise Refusal(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
    given = context.node.metadata.image.config(RESOURCE_GROUP, name)
    entries = []
    for key, prop in GROUP_PROPERTIES.items():
        own = [Synonym(key, str(prop.parse(given[key])), Source.GROUP)] if key in given else []
        dynamic = context.node.topic_settings.dynamic_synonyms(prop)
        synonyms = [*own, *dynamic, *broker_synonyms(context.node.config, prop)]
        entries.append(_entry(request, prop, key, synonyms[0].value, synonyms))
    return entries


def _dynamic(defaults: Mapping[str, str]) -> list[tuple[Property, str, Synonym]]:
    """What was set for all brokers, in order of the properties."""
    return [
        (prop, defaults[prop.name], Synonym(prop.name, defaults[prop.name], Source.CLUSTER_DEFAULT))
        for prop in BROKER_PROPERTIES.values()
        if prop.name in defaults
    ]


def _entry(
    request: DescribeConfigsRequest, prop: Property, name: str, value: str | None, synonyms: list[Synonym]
) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=name,
        value=value,
        read_only=name == prop.name and prop.scope is Scope.STATIC,
        config_source=source_of(synonyms),
        synonyms=[
            DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in (synonyms if request.include_synonyms else ())
        ],
        config_type=prop.kind,
        documentation=prop.doc if request.include_documentation else None,
    )


def _refused(resource: DescribeConfigsResource, error: ErrorCode, message: str | None) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=error,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def refuse(
    context: BrokerRequestContext, request: DescribeConfigsRequest, error: ErrorCode, message: str | None
) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(results=[_refused(resource, error, message) for resource in request.resources])


API: Final = Api(
    key=32,
    min_version=1,
    max_version=4,
    request=DescribeConfigsRequest,
    response=DescribeConfigsResponse,
    handle=handle,
    refuse=refuse,
    acl="DESCRIBE_CONFIGS on the topic or the group, or on the cluster for brokers",
    gaps=("client metrics and loggers are not resources here",),
)
