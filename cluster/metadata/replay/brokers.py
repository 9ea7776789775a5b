"""Replay of the records of brokers and controllers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from odradek.cluster.metadata.errors import InconsistentMetadata
from odradek.cluster.metadata.image import BrokerImage, ControllerImage, endpoints_of, supported_features_of

if TYPE_CHECKING:
    from odradek.cluster.metadata import records as r
    from odradek.cluster.metadata.changes import Changes

LINEAGE_MAX: Final = 16
"""Maximum broker epochs in a lineage: consecutive registrations of a broker that was never unfenced."""


def replay_register_broker(changes: Changes, record: r.RegisterBrokerRecord) -> None:
    image = BrokerImage(
        record.broker_id,
        record.broker_epoch,
        record.incarnation_id,
        endpoints_of(record.end_points),
        supported_features_of(record.features),
        record.rack,
        record.fenced,
        record.in_controlled_shutdown,
        tuple(record.log_dirs),
        tuple(record.cordoned_log_dirs or ()),
        _lineage(changes, record),
    )
    changes.brokers.put(record.broker_id, image)


def _lineage(changes: Changes, record: r.RegisterBrokerRecord) -> tuple[int, ...]:
    before = changes.brokers.get(record.broker_id)
    if before is None:
        return ()
    if before.epoch == record.broker_epoch:
        return before.lineage
    return (*before.lineage, before.epoch)[-LINEAGE_MAX:]


def _registered(changes: Changes, broker_id: int, epoch: int) -> BrokerImage:
    broker = changes.brokers.get(broker_id)
    if broker is None:
        raise InconsistentMetadata(f"broker {broker_id} is not registered")
    if broker.epoch != epoch:
        raise InconsistentMetadata(f"broker {broker_id} is registered with epoch {broker.epoch}, not {epoch}")
    return broker


def replay_broker_change(changes: Changes, record: r.BrokerRegistrationChangeRecord) -> None:
    broker = _registered(changes, record.broker_id, record.broker_epoch)
    if record.fenced not in {-1, 0, 1} or record.in_controlled_shutdown not in {0, 1}:
        raise InconsistentMetadata(f"broker {record.broker_id} is changed to an unknown state")
    if record.fenced:
        broker = replace(broker, fenced=record.fenced == 1)
        if not broker.fenced:
            broker = replace(broker, lineage=())
    if record.in_controlled_shutdown:
        broker = replace(broker, in_controlled_shutdown=True)
    if record.log_dirs:
        broker = replace(broker, directories=tuple(record.log_dirs))
    if record.cordoned_log_dirs is not None:
        broker = replace(broker, cordoned_directories=tuple(record.cordoned_log_dirs))
    changes.brokers.put(record.broker_id, broker)


def replay_fence_broker(changes: Changes, record: r.FenceBrokerRecord) -> None:
    broker = _registered(changes, record.id, record.epoch)
    changes.brokers.put(record.id, replace(broker, fenced=True))


def replay_unfence_broker(changes: Changes, record: r.UnfenceBrokerRecord) -> None:
    broker = _registered(changes, record.id, record.epoch)
    changes.brokers.put(record.id, replace(broker, fenced=False, lineage=()))


def replay_unregister_broker(changes: Changes, record: r.UnregisterBrokerRecord) -> None:
    _registered(changes, record.broker_id, record.broker_epoch)
    changes.brokers.remove(record.broker_id)


def replay_register_controller(changes: Changes, record: r.RegisterControllerRecord) -> None:
    image = ControllerImage(
        record.controller_id,
        record.incarnation_id,
        endpoints_of(record.end_points),
        supported_features_of(record.features),
    )
    changes.controllers.put(record.controller_id, image)


def replay_unregister_controller(changes: Changes, record: r.UnregisterControllerRecord) -> None:
    if changes.controllers.get(record.controller_id) is None:
        raise InconsistentMetadata(f"controller {record.controller_id} is not registered")
    changes.controllers.remove(record.controller_id)
