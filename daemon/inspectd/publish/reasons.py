"""MQTT reason codes: what each means in words, and what a refused result asks for. Pure."""

from __future__ import annotations

from enum import Enum

NO_SUBSCRIBERS = 0x10
NOT_AUTHORISED = 0x87
FAILURE = 0x80
"""Codes from here on say no."""
ITS_OWN_REASON = 0x83
UNSUPPORTED_VERSION = 0x84
KEEPALIVE_TIMEOUT = 0x8D
TAKEN_OVER = 0x8E
PACKET_TOO_LARGE = 0x95

WORDS = {
    0x00: "done",
    NO_SUBSCRIBERS: "nobody subscribes",
    0x80: "the broker refused it and gave no reason",
    0x81: "the broker could not read the packet",
    0x82: "the broker says that the protocol was broken",
    ITS_OWN_REASON: "the broker refused it for a reason of its own; see its log",
    UNSUPPORTED_VERSION: "the broker does not speak this version of MQTT; set mqtt.version",
    0x85: "the broker does not accept the client id",
    0x86: "user name or password is wrong; see mqtt.username and mqtt.password_file",
    NOT_AUTHORISED: "not authorised; the broker's access list must allow this user to publish under the base topic",
    0x88: "the broker is not available",
    0x89: "the broker is busy",
    0x8A: "the broker has banned this client",
    0x8B: "the broker is shutting down",
    0x8C: "the broker does not accept the way of signing in",
    KEEPALIVE_TIMEOUT: "the broker heard nothing for 1.5 times the keepalive",
    TAKEN_OVER: "another client uses the same client id; every station needs a base topic of its own",
    0x8F: "the broker does not accept the subscription",
    0x90: "the broker does not accept the topic",
    0x91: "the broker still holds a message of the same number",
    0x93: "more messages in flight than the broker takes",
    PACKET_TOO_LARGE: "larger than the broker takes",
    0x96: "more messages in a time than the broker takes",
    0x97: "the broker's quota is used up",
    0x98: "the broker's administrator ended it",
    0x99: "the broker does not accept the payload's format",
    0x9A: "the broker keeps no retained messages, and inspectd needs them",
    0x9B: "the broker does not serve this quality of service",
    0x9C: "the broker says: use another server",
    0x9D: "the broker has moved to another server",
    0x9F: "too many connections in a time for the broker",
}
"""MQTT 5, 2.4. The codes of 3.1.1 are mapped onto these by the client."""


class Refusal(Enum):
    """What a failed acknowledgement of a result asks for."""

    STOP = "stop"
    """Nothing will pass until someone mends the broker's rights: stop, keep everything."""
    DEAD = "dead"
    """This payload will never pass: put it aside."""
    AGAIN = "again"
    """The broker cannot now: the same again later."""
    UNSPECIFIC = "unspecific"
    """The broker does not say: again a few times, then put it aside."""


_REFUSALS = {
    NOT_AUTHORISED: Refusal.STOP,
    0x90: Refusal.STOP,
    0x91: Refusal.AGAIN,
    PACKET_TOO_LARGE: Refusal.DEAD,
    0x97: Refusal.AGAIN,
    0x99: Refusal.DEAD,
}
"""MQTT 5, 3.4.2.1. 0x95 is not in that list, but mosquitto answers it for its `message_size_limit`."""


def words(reason: int) -> str:
    """Say what a code means, with the number."""
    return f"{WORDS.get(reason, 'unknown reason')} ({reason})"


def connect_words(reason: int) -> str:
    """Say what a code means as the answer to our CONNECT: mosquitto says "not authorised" to a wrong password."""
    return words(0x86 if reason == NOT_AUTHORISED else reason)


def refusal(reason: int) -> Refusal:
    """Say what to do about a result that was refused for this reason (0x80 or above)."""
    return _REFUSALS.get(reason, Refusal.UNSPECIFIC)
