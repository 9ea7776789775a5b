"""UpdateFeatures: change finalized feature levels (KIP-584, KIP-778).

Behavior:
* The controller makes all changes of a request or none. A lower level needs an explicit downgrade.
* A new cluster has `metadata.version` 33 (4.4-IV2). A cluster of an earlier version keeps its level, 30 (4.3-IV0).
  `kafka-features upgrade --feature metadata.version=33` raises it when all brokers support 33. A downgrade to a level
  that lacks records of the current level is refused.
* `kafka-features upgrade --release-version 4.4` is refused. It requests `metadata.version` 33, `kraft.version` 1,
  `transaction.version` 2, `group.version` 1, `eligible.leader.replicas.version` 1, `share.version` 2 and
  `streams.version` 1. This broker has static voters (`kraft.version` 0), no share groups and no streams groups. Clients
  use features by these levels, so the broker does not claim them.
* A new cluster has the other four levels of release 4.4 already. `--feature` changes levels one by one.
  `--release-version` of an earlier release is refused for its `metadata.version`.
* A request for level 0 of a feature that is not supported succeeds and changes nothing.

Errors:
* CLUSTER_AUTHORIZATION_FAILED; INVALID_REQUEST for more than UPDATES_MAX updates; INVALID_UPDATE_VERSION if this
  version or a registered broker does not support the level.

Version notes:
* v1 has the upgrade type and `ValidateOnly` (KIP-778). v2 has one result for all features (KIP-1022).
"""

from typing import Final

from odradek.broker.contexts import QuorumRequestContext
from odradek.broker.requests.api import Api, Routing
from odradek.broker.requests.listener import CLIENT, CONTROLLER
from odradek.cluster.authorizer import AclOperation
from odradek.cluster.controller.messages.settings import FeatureUpdate
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

UPDATES_MAX: Final = 100
"""Maximum updates per request. Kafka 4.4 has seven features."""
UPGRADE: Final = 1
SAFE_DOWNGRADE: Final = 2
UNSAFE_DOWNGRADE: Final = 3
DOWNGRADES: Final = (SAFE_DOWNGRADE, UNSAFE_DOWNGRADE)
UPGRADE_TYPE_MIN_VERSION: Final = 1
RESULTS_MAX_VERSION: Final = 1


async def handle(context: QuorumRequestContext, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    if not context.allowed_on_cluster(AclOperation.ALTER, about=(each.feature for each in request.feature_updates)):
        raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if len(request.feature_updates) > UPDATES_MAX:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"a request updates at most {UPDATES_MAX} features")
    updates = [_update(context, update) for update in request.feature_updates]
    feature_results = await context.quorum.controller.update_features(
        updates, validate_only=request.validate_only, timeout_ms=request.timeout_ms
    )
    results = []
    if context.api_version <= RESULTS_MAX_VERSION:
        results = [
            UpdatableFeatureResult(feature=result.name, error_code=result.error, error_message=result.message)
            for result in feature_results
        ]
    return UpdateFeaturesResponse(error_message=None, results=results)


def _update(context: QuorumRequestContext, update: FeatureUpdateKey) -> FeatureUpdate:
    if context.api_version < UPGRADE_TYPE_MIN_VERSION:
        return FeatureUpdate(update.feature, update.max_version_level, update.allow_downgrade)
    if update.upgrade_type not in {UPGRADE, *DOWNGRADES}:
        raise Refusal(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"Invalid update version {update.max_version_level} for feature {update.feature}."
            " The controller does not support the given upgrade type.",
        )
    unsafe = update.upgrade_type == UNSAFE_DOWNGRADE
    return FeatureUpdate(update.feature, update.max_version_level, update.upgrade_type in DOWNGRADES, unsafe)


def refuse(
    context: QuorumRequestContext, request: UpdateFeaturesRequest, error: ErrorCode, message: str | None
) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(error_code=error, error_message=message)


API: Final = Api(
    key=57,
    min_version=0,
    max_version=2,
    request=UpdateFeaturesRequest,
    response=UpdateFeaturesResponse,
    handle=handle,
    refuse=refuse,
    listeners=(CLIENT, CONTROLLER),
    routing=Routing.CONTROLLER,
    acl="ALTER on the cluster",
)
