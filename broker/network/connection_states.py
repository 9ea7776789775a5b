"""The states of a client connection: taking requests (`Intake`), and reading its transport (`Reading`).

Both change independently of each other. The limits that cause them are quantities, not states: requests in flight, the
byte budget, unsent bytes, the throttle time of a client.
"""

from enum import Enum
from typing import Final

from odradek.runtime.machine import BUG, TransitionTable


class Intake(Enum):
    """State of taking requests. The connection takes the next request in OPEN alone."""

    ACCEPTED = "the node does not serve requests yet"
    DELAYED = "admitted, and delayed by the connection creation rate"
    OPEN = "takes requests"
    YIELDED = "has taken requests for a whole turn; the event loop runs other connections"
    HELD = "stage one of a request is not complete, or a request waits until the broker is registered"
    HELD_YIELDED = "both HELD and YIELDED"
    CLOSED = "takes no further request"

    __hash__ = object.__hash__  # Enum's own hash is Python code


class IntakeEvent(Enum):
    """Event that changes the intake."""

    ADMITTED = "the node serves requests, and the connection is within its limits"
    ADMITTED_LATER = "like ADMITTED, but the connection creation rate is exceeded"
    DELAY_OVER = "the delay by the connection creation rate has passed"
    TURN_USED = "REQUESTS_AT_A_TIME requests were taken in a row, or requests for TURN_US_MAX; or `ServerState.is_busy`"
    NEXT_TURN = "the event loop has run the other connections"
    HOLD = "a request was taken that later requests must wait for"
    RELEASE = "later requests need not wait for that request any longer"
    CLOSE = "the connection is closed, by either side"

    __hash__ = object.__hash__


_I = Intake
_E = IntakeEvent
# fmt: off
INTAKE: Final[TransitionTable[Intake, IntakeEvent, Intake]] = TransitionTable.of_rows(
    "connection intake",
    Intake,
    IntakeEvent,
    {
        #                   ACCEPTED    DELAYED     OPEN        YIELDED          HELD        HELD_YIELDED  CLOSED
        _E.ADMITTED:       (_I.OPEN,    BUG,        BUG,        BUG,             BUG,        BUG,          BUG),
        _E.ADMITTED_LATER: (_I.DELAYED, BUG,        BUG,        BUG,             BUG,        BUG,          BUG),
        _E.DELAY_OVER:     (BUG,        _I.OPEN,    BUG,        BUG,             BUG,        BUG,          _I.CLOSED),
        _E.TURN_USED:      (BUG,        BUG,        _I.YIELDED, BUG,             BUG,        BUG,          BUG),
        _E.NEXT_TURN:      (BUG,        BUG,        BUG,        _I.OPEN,         BUG,        _I.HELD,      _I.CLOSED),
        _E.HOLD:           (BUG,        BUG,        _I.HELD,    _I.HELD_YIELDED, BUG,        BUG,          _I.CLOSED),
        _E.RELEASE:        (BUG,        BUG,        BUG,        BUG,             _I.OPEN,    _I.YIELDED,   _I.CLOSED),
        _E.CLOSE:          (_I.CLOSED,  _I.CLOSED,  _I.CLOSED,  _I.CLOSED,       _I.CLOSED,  _I.CLOSED,    _I.CLOSED),
    },
)
# fmt: on


class Reading(Enum):
    """State of reading the transport.

    A pause that the connection itself caused restarts the frame deadline: the client could not send the rest of a
    request.
    """

    ON = "the transport is read"
    SELF_LIMITED = "paused: the connection takes no request now"
    OVER_BUDGET = "paused: the byte budget of the broker is exhausted"

    __hash__ = object.__hash__


class ReadingEvent(Enum):
    """Result of a check of the limits."""

    BELOW_LIMITS = "the connection takes requests"
    SELF_LIMIT = "the connection itself takes no request now"
    BUDGET = "the connection would take requests, but the byte budget is exhausted"

    __hash__ = object.__hash__


_R = Reading
# fmt: off
READING: Final[TransitionTable[Reading, ReadingEvent, Reading]] = TransitionTable.of_rows(
    "connection reading",
    Reading,
    ReadingEvent,
    {
        # The first cause of a pause is kept until the transport is read again.
        #                           ON               SELF_LIMITED     OVER_BUDGET
        ReadingEvent.BELOW_LIMITS: (_R.ON,           _R.ON,           _R.ON),
        ReadingEvent.SELF_LIMIT:   (_R.SELF_LIMITED, _R.SELF_LIMITED, _R.OVER_BUDGET),
        ReadingEvent.BUDGET:       (_R.OVER_BUDGET,  _R.SELF_LIMITED, _R.OVER_BUDGET),
    },
)
# fmt: on
