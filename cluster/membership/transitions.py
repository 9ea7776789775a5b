"""The state of another member as this node sees it, as a table. No other code changes it.

A suspicion or failure declaration by another node is not enough: it makes the member a suspect here, and this node probes it.
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

    ANSWERED = "it answered"
    REFUTED = "it says that it lives"
    SILENT = "no answer, nor through others"
    LOST = "its connection was lost"
    ACCUSED = "another node suspects it"
    CONDEMNED = "another node holds it dead"
    HEARD = "it is heard by TCP"
    GONE = "it refuses connections and answers no ping"
    EXPIRED = "silent for the whole suspicion"
    REPLACED = "another process answers in its place"


_ALIVE, _SUSPECT, _DEAD = State.ALIVE, State.SUSPECT, State.DEAD

# fmt: off
TRANSITIONS: Final[TransitionTable[State, Event, State]] = TransitionTable.of_rows(
    "members",
    State,
    Event,
    {
        #                 ALIVE     SUSPECT   DEAD
        Event.ANSWERED:  (_ALIVE,   _ALIVE,   _ALIVE),
        Event.REFUTED:   (_ALIVE,   _ALIVE,   _ALIVE),
        Event.SILENT:    (_SUSPECT, _SUSPECT, BUG),
        Event.LOST:      (_SUSPECT, _SUSPECT, _DEAD),
        Event.ACCUSED:   (_SUSPECT, _SUSPECT, _DEAD),
        Event.CONDEMNED: (_SUSPECT, _SUSPECT, _DEAD),
        Event.HEARD:     (BUG,      _SUSPECT, _SUSPECT),
        Event.GONE:      (BUG,      _DEAD,    BUG),
        Event.EXPIRED:   (BUG,      _DEAD,    BUG),
        Event.REPLACED:  (_DEAD,    _DEAD,    _DEAD),
    },
)
# fmt: on
