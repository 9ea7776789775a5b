"""The states of a broker's registration with the controller, as the broker sees them (KIP-631)."""

from __future__ import annotations

from enum import Enum
from typing import Final

from odradek.frozen import frozen_dataclass
from odradek.runtime.machine import BUG, TransitionTable


class State(Enum):
    """The request that the broker sends next, and why."""

    REGISTERING = "sends BrokerRegistration"
    FENCED = "sends heartbeats; the controller does not let it lead yet"
    ACTIVE = "sends heartbeats; the controller lets it lead"
    LEAVING = "sends heartbeats that request a controlled shutdown; the controller has not responded to one"
    DRAINING = "the controller has moved its leaders; the other brokers catch up"
    ENDED = "the controller has let it leave, or the broker leaves without its consent"
    FAILED = "the controller has refused it permanently; the node must stop"


class Event(Enum):
    """The result of a request, or a command of the node."""

    REGISTERED = "the registration is committed, and this broker has it in its metadata"
    NOT_REGISTERED = "a retriable refusal of the registration, or no response"
    FENCED_RESPONSE = "the heartbeat response: this broker is fenced"
    FENCED_ON_REQUEST = "the heartbeat response: this broker is fenced, as it has requested"
    ACTIVE_RESPONSE = "the heartbeat response: this broker is not fenced"
    SHUT_DOWN_RESPONSE = "the heartbeat response: this broker may shut down"
    NO_RESPONSE = "no response to the heartbeat, or a retriable refusal"
    NO_HAND_OVER = "no response to the heartbeat of a leaving broker, and no controller or broker to hand over to"
    UNKNOWN_REGISTRATION = "the controller does not know this registration"
    REFUSED = "a permanent refusal"
    STOP = "the node stops"


class Wait(Enum):
    """The delay before the next request."""

    NONE = "none"
    BACKOFF = "retry back-off"
    INTERVAL = "broker.heartbeat.interval.ms"


@frozen_dataclass(frozen=True, slots=True)
class Step:
    """The next state, and the delay before its first request."""

    state: State
    wait: Wait = Wait.NONE


REGISTER, REGISTER_LATER = Step(State.REGISTERING), Step(State.REGISTERING, Wait.BACKOFF)
CATCH_UP = Step(State.FENCED)
FENCED_RETRY, FENCED_REST = Step(State.FENCED, Wait.BACKOFF), Step(State.FENCED, Wait.INTERVAL)
ACTIVE_RETRY, ACTIVE_REST = Step(State.ACTIVE, Wait.BACKOFF), Step(State.ACTIVE, Wait.INTERVAL)
LEAVE, LEAVE_RETRY = Step(State.LEAVING), Step(State.LEAVING, Wait.BACKOFF)
DRAIN, DRAIN_RETRY = Step(State.DRAINING), Step(State.DRAINING, Wait.BACKOFF)
END, FAIL = Step(State.ENDED), Step(State.FAILED)

# fmt: off
TRANSITIONS: Final[TransitionTable[State, Event, Step]] = TransitionTable.of_rows(
    "broker lifecycle",
    State,
    Event,
    {
        #                            REGISTERING     FENCED        ACTIVE        LEAVING      DRAINING     ENDED  FAILED
        Event.REGISTERED:           (CATCH_UP,       BUG,          BUG,          BUG,         BUG,         BUG,   BUG),
        Event.NOT_REGISTERED:       (REGISTER_LATER, BUG,          BUG,          BUG,         BUG,         BUG,   BUG),
        # A fenced broker sends heartbeats without a pause of an interval: only its metadata has to catch up.
        Event.FENCED_RESPONSE:      (BUG,            FENCED_RETRY, FENCED_RETRY, DRAIN,       DRAIN_RETRY, BUG,   BUG),
        Event.FENCED_ON_REQUEST:    (BUG,            FENCED_REST,  FENCED_REST,  DRAIN,       DRAIN_RETRY, BUG,   BUG),
        # The first response to a leaving broker comes with the moved leaders. The next heartbeat follows immediately,
        # and confirms that they have arrived here. The further ones wait for other brokers.
        Event.ACTIVE_RESPONSE:      (BUG,            ACTIVE_REST,  ACTIVE_REST,  DRAIN,       DRAIN_RETRY, BUG,   BUG),
        Event.SHUT_DOWN_RESPONSE:   (BUG,            END,          END,          END,         END,         BUG,   BUG),
        Event.NO_RESPONSE:          (BUG,            FENCED_RETRY, ACTIVE_RETRY, LEAVE_RETRY, DRAIN_RETRY, BUG,   BUG),
        Event.NO_HAND_OVER:         (BUG,            BUG,          BUG,          END,         END,         BUG,   BUG),
        Event.UNKNOWN_REGISTRATION: (BUG,            REGISTER,     REGISTER,     END,         END,         BUG,   BUG),
        Event.REFUSED:              (FAIL,           FAIL,         FAIL,         END,         END,         BUG,   BUG),
        Event.STOP:                 (END,            LEAVE,        LEAVE,        BUG,         BUG,         BUG,   BUG),
    },
)
# fmt: on

RUNNING: Final = (State.REGISTERING, State.FENCED, State.ACTIVE)
"""States in which the node has not been stopped."""
SHUTTING_DOWN: Final = (State.LEAVING, State.DRAINING)
"""States in which a heartbeat requests a controlled shutdown."""
OVER: Final = (State.ENDED, State.FAILED)
"""States in which no request is sent any more."""
