"""The state of another member as this node sees it, as a table. No other code changes it.

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
    DEAD = "dead"


class Event(Enum):
    """An observation of a member. The value is the evidence that a log event shows."""

    ACKNOWLEDGED = "it answered"
    REFUTED = "it says that it lives"
    NO_ACK = "no answer, nor through others"
    CONNECTION_LOST = "its connection was lost"
    SUSPICION_RECEIVED = "another node suspects it"
    FAILURE_RECEIVED = "another node holds it dead"
    TCP_CONTACT = "it is heard by TCP"
    NOT_LISTENING = "it refuses connections and answers no ping"
    SUSPICION_TIMEOUT = "silent for the whole suspicion"
    REPLACED = "another process answers in its place"


_ALIVE, _SUSPECT, _DEAD = State.ALIVE, State.SUSPECT, State.DEAD

# fmt: off
TRANSITIONS: Final[TransitionTable[State, Event, State]] = TransitionTable.of_rows(
    "members",
    State,
    Event,
    {
        #                          ALIVE     SUSPECT   DEAD
        Event.ACKNOWLEDGED:       (_ALIVE,   _ALIVE,   _ALIVE),
        Event.REFUTED:            (_ALIVE,   _ALIVE,   _ALIVE),
        Event.NO_ACK:             (_SUSPECT, _SUSPECT, BUG),
        Event.CONNECTION_LOST:    (_SUSPECT, _SUSPECT, _DEAD),
        Event.SUSPICION_RECEIVED: (_SUSPECT, _SUSPECT, _DEAD),
        Event.FAILURE_RECEIVED:   (_SUSPECT, _SUSPECT, _DEAD),
        Event.TCP_CONTACT:        (BUG,      _SUSPECT, _SUSPECT),
        Event.NOT_LISTENING:      (BUG,      _DEAD,    BUG),
        Event.SUSPICION_TIMEOUT:  (BUG,      _DEAD,    BUG),
        Event.REPLACED:           (_DEAD,    _DEAD,    _DEAD),
    },
)
# fmt: on
