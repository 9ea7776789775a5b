"""Transition table of a member's state as this node sees it. No other code changes the state.

A suspicion or failure declaration by another node is not enough: it makes the member a suspect here, and this node
probes it.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from odradek.runtime.machine import BUG, TransitionTable


class State(Enum):
    ALIVE = "alive"
    SUSPECT = "suspect"
    FAILED = "failed"


class Event(Enum):
    """An observation of a member. The value is the evidence that a log event shows."""

    ACKNOWLEDGED = "acknowledgment received"
    REFUTED = "suspicion refuted"
    NO_ACK = "no acknowledgment, directly or through other nodes"
    CONNECTION_LOST = "connection lost"
    SUSPICION_RECEIVED = "suspected by another node"
    FAILURE_RECEIVED = "failure declared by another node"
    TCP_CONTACT = "bytes received by TCP"
    NOT_LISTENING = "connections refused and ping not acknowledged"
    SUSPICION_TIMEOUT = "suspicion timed out"
    REPLACED = "acknowledgment by another process"


_ALIVE, _SUSPECT, _FAILED = State.ALIVE, State.SUSPECT, State.FAILED

# fmt: off
TRANSITIONS: Final[TransitionTable[State, Event, State]] = TransitionTable.of_rows(
    "members",
    State,
    Event,
    {
        #                          ALIVE     SUSPECT   FAILED
        Event.ACKNOWLEDGED:       (_ALIVE,   _ALIVE,   _ALIVE),
        Event.REFUTED:            (_ALIVE,   _ALIVE,   _ALIVE),
        Event.NO_ACK:             (_SUSPECT, _SUSPECT, BUG),
        Event.CONNECTION_LOST:    (_SUSPECT, _SUSPECT, _FAILED),
        Event.SUSPICION_RECEIVED: (_SUSPECT, _SUSPECT, _FAILED),
        Event.FAILURE_RECEIVED:   (_SUSPECT, _SUSPECT, _FAILED),
        Event.TCP_CONTACT:        (BUG,      _SUSPECT, _SUSPECT),
        Event.NOT_LISTENING:      (BUG,      _FAILED,  BUG),
        Event.SUSPICION_TIMEOUT:  (BUG,      _FAILED,  BUG),
        Event.REPLACED:           (_FAILED,  _FAILED,  _FAILED),
    },
)
# fmt: on
