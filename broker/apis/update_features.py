"""UpdateFeatures: v0-v2

Behavior:
* Finalize features at other levels (KIP-584), all of them or none. INVALID_UPDATE_VERSION where this version, or a
  broker that is registered, cannot live up to the level; lower ones only on request.
* `kafka-features upgrade --release-version 4.3` is refused. The tool asks for all that this release of Kafka finalizes,
  which is `metadata.version` 30, `kraft.version` 1, `transaction.version` 2, `group.version` 1,
  `eligible.leader.replicas.version` 1, `share.version` 1 and `streams.version` 1; here voters come from the
  configuration (`kraft.version` 0), and there are neither share groups nor groups of the streams protocol. Clients go
  by these levels, so none is claimed that nothing is behind. The other four are what a new cluster begins with;
  `--feature` names them one by one. `--release-version` of another release is refused for its `metadata.version`. Level
  0 of what there is not is what holds, and can be asked for.

Version notes: v1 has the kind of change and a dry run (KIP-778); v2 answers for all features together.
"""

from typing import Final

from odradek.broker.contexts import QuorumRequestContext
from odradek.broker.requests.api import Api, Routing
from odradek.cluster.authorizer import AclOperation
from odradek.cluster.controller.messages.settings import FeatureUpdate
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

UPGRADE: Final = 1
DOWNGRADES: Final = (2, 3)
UPGRADE_TYPE_MIN_VERSION: Final = 1
RESULTS_MAX_VERSION: Final = 1


async def handle(context: QuorumRequestContext, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    if not context.allowed_on_cluster(AclOperation.ALTER):
        raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    updates = [_update(context, item) for item in request.feature_updates]
    done = await context.quorum.controller.update_features(
        updates, validate_only=request.validate_only, timeout_ms=request.timeout_ms
    )
    results = []
    if context.api_version <= RESULTS_MAX_VERSION:
        results = [
            UpdatableFeatureResult(feature=each.name, error_code=each.error, error_message=each.message)
            for each in done
        ]
    return UpdateFeaturesResponse(error_message=None, results=results)


def _update(context: QuorumRequestContext, item: FeatureUpdateKey) -> FeatureUpdate:
    if context.api_version < UPGRADE_TYPE_MIN_VERSION:
        return FeatureUpdate(item.feature, item.max_version_level, item.allow_downgrade)
    if item.upgrade_type not in {UPGRADE, *DOWNGRADES}:
        raise Refusal(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"Invalid update version {item.max_version_level} for feature {item.feature}. The controller does not support the"
            " given upgrade type.",
        )
    return FeatureUpdate(item.feature, item.max_version_level, item.upgrade_type in DOWNGRADES)


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
    routing=Routing.CONTROLLER,
    acl="ALTER on the cluster",
)
