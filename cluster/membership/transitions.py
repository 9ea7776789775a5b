"""What a node holds of another one, as a table. There is no state outside it and no other way from one to the next.

Nobody is declared dead on the word of another node: an accusation makes the accused a suspect here, and this node looks itself.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class State(Enum):
    ALIVE = "alive"
    SUSPECT = "suspect"
    DEAD = "dead"


class Event(Enum):
    """What happened; the value is how it reads as the evidence of a verdict."""

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


class Bug(AssertionError):
    """An event in a state where it cannot happen."""


_ALIVE, _SUSPECT, _DEAD = State.ALIVE, State.SUSPECT, State.DEAD

# fmt: off
TRANSITIONS: Final[dict[Event, tuple[State | None, State | None, State | None]]] = {
    # event            alive     suspect   dead        None: cannot happen
    Event.ANSWERED:  (_ALIVE,   _ALIVE,   _ALIVE),
    Event.REFUTED:   (_ALIVE,   _ALIVE,   _ALIVE),
    Event.SILENT:    (_SUSPECT, _SUSPECT, None),
    Event.LOST:      (_SUSPECT, _SUSPECT, _DEAD),
    Event.ACCUSED:   (_SUSPECT, _SUSPECT, _DEAD),
    Event.CONDEMNED: (_SUSPECT, _SUSPECT, _DEAD),
    Event.HEARD:     (None,     _SUSPECT, _SUSPECT),
    Event.GONE:      (None,     _DEAD,    None),
    Event.EXPIRED:   (None,     _DEAD,    None),
    Event.REPLACED:  (_DEAD,    _DEAD,    _DEAD),
}
# fmt: on
_COLUMNS: Final = (_ALIVE, _SUSPECT, _DEAD)

assert set(TRANSITIONS) == set(Event), "a row for every event"


def after(state: State, event: Event) -> State:
    """The state that `event` leads to. Raises Bug."""
    following = TRANSITIONS[event][_COLUMNS.index(state)]
    if following is None:
        raise Bug(f"{event.name} cannot happen to a node that is {state.value}")
    return following
