"""DescribeConfigs: list the configuration of topics, groups and brokers (KIP-133).

Behavior:
* A broker is named by its id, which must be the id of the broker that receives the request. An empty name stands for
  the dynamic configuration of all brokers.
* Each supported property is listed, with its value and source. If the request names properties, only these are listed.
  On request, the list includes the synonyms (values of lower precedence) and the documentation.

Errors:
* Per resource: TOPIC_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED or CLUSTER_AUTHORIZATION_FAILED;
  UNKNOWN_TOPIC_OR_PARTITION; INVALID_TOPIC_EXCEPTION; INVALID_REQUEST for another broker's id, for loggers of brokers
  and for client metrics.

Version notes:
* v3 has types and documentation of properties (KIP-569). v4 is flexible.
"""

from itertools import dropwhile
from typing import Final

from odradek.broker.config.brokers import BROKER_PROPERTIES, property_of
from odradek.broker.config.groups import GROUP_PROPERTIES
from odradek.broker.config.properties import Config
from odradek.broker.config.property import Kind, Property, Scope
from odradek.broker.config.requests import check_authorized, check_kind
from odradek.broker.config.topics import (
    TOPIC_PROPERTIES,
    Source,
    Synonym,
    TopicSettings,
    broker_synonyms,
    source_of,
)
from odradek.broker.contexts import QuorumRequestContext
from odradek.broker.requests.api import Api, split_by
from odradek.broker.requests.listener import CLIENT, CONTROLLER
from odradek.broker.requests.splitting import ELEMENT_CHARGE_BYTES_MIN
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

CUSTOM: Final = Property("", Kind.PASSWORD, None, "A custom property, which this broker stores only.")
"""Stands for all custom properties. As in Kafka, their values count as secret."""
UNKNOWN_TYPE: Final = 0
"""ConfigType.UNKNOWN of Kafka: the type of a custom property."""
RESOURCES_PER_PART: Final = 4
"""Maximum resources per part of a request. A broker has 200 properties; with synonyms and documentation they take 2
ms."""


def handle(context: QuorumRequestContext, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(results=[_resource(context, request, resource) for resource in request.resources])


def _resource(
    context: QuorumRequestContext, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    try:
        check_authorized(context, AclOperation.DESCRIBE_CONFIGS, resource.resource_type, resource.resource_name)
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
    keys = dict.fromkeys(resource.configuration_keys or ())
    return DescribeConfigsResult(
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[config for config in configs if not keys or config.name in keys],
    )


def _topic(
    context: QuorumRequestContext, request: DescribeConfigsRequest, name: str
) -> list[DescribeConfigsResourceResult]:
    reason = invalid_name(name)
    if reason is not None:
        raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")
    image = context.node.metadata.image
    if image.topic(name) is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    settings: TopicSettings = context.node.topic_settings
    config = image.topic_config(name)
    return [
        _entry(request, prop, key, settings.text(key, config), _listed_synonyms(prop, settings.synonyms(key, config)))
        for key, prop in TOPIC_PROPERTIES.items()
    ]


def _listed_synonyms(prop: Property, synonyms: list[Synonym]) -> list[Synonym]:
    """Return the synonyms that Kafka lists for a topic's property.

    They are the topic's own value, then `prop` and the synonyms after it. Synonyms in coarser units that precede `prop`
    (`log.retention.hours`) are omitted.
    """
    own = [synonym for synonym in synonyms if synonym.source is Source.TOPIC]
    return own + list(dropwhile(lambda synonym: synonym.name != prop.name, synonyms[len(own) :]))


def _broker(
    context: QuorumRequestContext, request: DescribeConfigsRequest, name: str
) -> list[DescribeConfigsResourceResult]:
    defaults = context.node.metadata.image.config(RESOURCE_BROKER, "")
    if not name:
        return [
            _entry(request, property_of(key) or CUSTOM, key, text, [Synonym(key, text, Source.CLUSTER_DEFAULT)])
            for key, text in defaults.items()
        ]
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
    own = context.node.metadata.image.config(RESOURCE_BROKER, name)
    # Properties without an effect, those of one listener, and custom ones are described if they are set.
    names = dict.fromkeys((*own, *defaults, *config.without_effect))
    others = [key for key in names if key not in BROKER_PROPERTIES]
    return entries + [_other(request, key, settings.dynamic_texts(key), config) for key in others]


def _other(
    request: DescribeConfigsRequest, name: str, dynamic: list[Synonym], config: Config
) -> DescribeConfigsResourceResult:
    """Describe a property that has no row in BROKER_PROPERTIES. The value of a custom property is never described."""
    prop = property_of(name) or CUSTOM
    static = broker_synonyms(config, prop) if prop.name == name else []
    synonyms = [*dynamic, *static]
    return _entry(request, prop, name, prop.render(prop.parse(synonyms[0].value)), synonyms)


def _group(
    context: QuorumRequestContext, request: DescribeConfigsRequest, name: str
) -> list[DescribeConfigsResourceResult]:
    if not name:
        raise Refusal(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
    config = context.node.metadata.image.config(RESOURCE_GROUP, name)
    entries = []
    for key, prop in GROUP_PROPERTIES.items():
        own = [Synonym(key, str(prop.parse(config[key])), Source.GROUP)] if key in config else []
        dynamic = context.node.topic_settings.dynamic_synonyms(prop)
        synonyms = [*own, *dynamic, *broker_synonyms(context.node.config, prop)]
        entries.append(_entry(request, prop, key, synonyms[0].value, synonyms))
    return entries


def _entry(
    request: DescribeConfigsRequest, prop: Property, name: str, value: str | None, synonyms: list[Synonym]
) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=name,
        value=None if prop.is_secret else value,
        is_sensitive=prop.is_secret,
        read_only=prop is CUSTOM or (name == prop.name and prop.scope in {Scope.STATIC, Scope.CLUSTER}),
        config_source=source_of(synonyms),
        synonyms=[
            DescribeConfigsSynonym(
                name=synonym.name, value=None if prop.is_secret else synonym.value, source=synonym.source
            )
            for synonym in (synonyms if request.include_synonyms else ())
        ],
        config_type=UNKNOWN_TYPE if prop is CUSTOM else prop.kind,
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
    context: QuorumRequestContext, request: DescribeConfigsRequest, error: ErrorCode, message: str | None
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
    listeners=(CLIENT, CONTROLLER),
    splitting=split_by(("resources",), ("results",), RESOURCES_PER_PART),
    parts_charge_bytes_min=ELEMENT_CHARGE_BYTES_MIN * RESOURCES_PER_PART,
    acl="DESCRIBE_CONFIGS on the topic or the group, or on the cluster for brokers",
    gaps=("client metrics and loggers of brokers have no configuration",),
)
