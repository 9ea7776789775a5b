"""Names of Kafka's APIs and error codes, as tests write them."""

from __future__ import annotations

import re
from difflib import get_close_matches
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from odradek.protocol import messages
from odradek.protocol.errors import ErrorCode
from odradek.protocol.named_fields import GROUPS, TOPICS, TRANSACTIONAL_IDS, kinds_in
from odradek.testing.rules import ANY

if TYPE_CHECKING:
    from collections.abc import Iterable

    from odradek.protocol.schema import Message

ANY_API = -1
"""API key of the protocol with brokers that stands for all APIs."""
CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")
CONSTANT = re.compile(r"[A-Z]+(_[A-Z]+)*")
"""Form of the constants of Kafka's Java code, such as `END_TXN`."""
NOT_SERVED = frozenset(
    {
        "AddRaftVoter", "AlterReplicaLogDirs", "AlterShareGroupOffsets", "AssignReplicasToDirs", "ControlledShutdown",
        "DeleteShareGroupOffsets", "DeleteShareGroupState", "DescribeShareGroupOffsets", "GetTelemetrySubscriptions",
        "InitializeShareGroupState", "LeaderAndIsr", "PushTelemetry", "ReadShareGroupState",
        "ReadShareGroupStateSummary", "RemoveRaftVoter", "ShareAcknowledge", "ShareFetch", "ShareGroupDescribe",
        "ShareGroupHeartbeat", "StopReplica", "StreamsGroupDescribe", "StreamsGroupHeartbeat",
        "StreamsGroupTopologyDescriptionUpdate", "UpdateMetadata", "UpdateRaftVoter", "WriteShareGroupState",
    }
)  # fmt: skip
"""APIs of Kafka that no broker of Odradek serves, so that no rule sees a request of them."""
KINDS = {"topic": TOPICS, "partition": TOPICS, "group": GROUPS, "transactional_id": TRANSACTIONAL_IDS}
"""Kinds of names by which the arguments of `Faults.on` select requests."""


def api_key(name: Any) -> int:
    """Return the key of the API with Kafka's name, such as `EndTxn`.

    Raise ValueError if it does not exist, or if no broker serves it.
    """
    return ANY_API if name == ANY else int(_request(name).API_KEY)


def check_selection(api: str, arguments: Iterable[str]) -> None:
    """Raise ValueError if no request of an API contains what one of the `arguments` of `Faults.on` selects by."""
    if api == ANY:
        return
    kinds = kinds_in(_request(api))
    for argument in arguments:
        if KINDS[argument] not in kinds:
            possible = [name for name, kind in KINDS.items() if kind in kinds] or ["client_id"]
            raise ValueError(
                f"{argument}: a request {api} contains no {KINDS[argument].replace('_', ' ')}, so it never matches; "
                f"select by {' or '.join(possible)}"
            )


def _request(name: Any) -> type[Message]:
    if not isinstance(name, str):
        raise ValueError(f"API {name!r} is no name; use a text such as 'EndTxn'")  # noqa: TRY004  the documented error
    module = (name if CONSTANT.fullmatch(name) else CAPITAL.sub("_", name)).lower()
    known = [each.name for each in iter_modules(messages.__path__)]
    if module in known:
        if name in NOT_SERVED:
            raise ValueError(f"API {name!r} is not served by the brokers (docs/apis.md), so no request matches")
        request: type[Message] | None = getattr(import_module(f"{messages.__name__}.{module}"), f"{name}Request", None)
        if request is not None:
            return request
    served = [each for each in known if _name_of(each) not in NOT_SERVED]
    close = map(_name_of, get_close_matches(module, served, 3))
    raise ValueError(f"API {name!r} does not exist; did you mean {', '.join(close) or 'EndTxn'}?")


def _name_of(module: str) -> str:
    """Return the name of the API of a module, such as `EndTxn` of `end_txn`."""
    return "".join(map(str.capitalize, module.split("_")))


def error_code(name: Any) -> int:
    """Return the error code with Kafka's name, such as `NOT_COORDINATOR`. Raise ValueError if it does not exist."""
    if not isinstance(name, str) or name == ErrorCode.NONE.name:
        raise ValueError(f"error {name!r} is no name of an error; use a text such as 'NOT_COORDINATOR'")
    try:
        return int(ErrorCode[name])
    except KeyError:
        constant = name.upper() if "_" in name or name.isupper() else CAPITAL.sub("_", name).upper()
        close = get_close_matches(constant, ErrorCode.__members__, 3)
        raise ValueError(
            f"error {name!r} does not exist; did you mean {', '.join(close) or 'NOT_COORDINATOR'}?"
        ) from None
