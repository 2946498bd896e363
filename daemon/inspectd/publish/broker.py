"""What is known about the broker and one connection to it: settings, greetings, endings. Values only, no paho."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from inspectd.errors import OutsideError
from inspectd.publish.effects import Incoming

MOST_BYTES = 256 * 1024 * 1024
"""MQTT's own limit of a packet: a broker that names none takes this."""

Version = Literal[5, "3.1.1"]


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files, read at each connect, so that an exchanged one needs no restart."""

    ca_file: Path | None = None
    """Who may have signed the broker's certificate; None: the authorities that this PC trusts."""
    cert_file: Path | None = None
    """Our own certificate, if the broker wants one."""
    key_file: Path | None = None
    """Its key, not encrypted."""


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """Where the broker is and who we are."""

    host: str
    port: int
    base: str
    """Base topic; the client id is made of it."""
    will: Callable[[], bytes]
    """Makes the last will (status offline, connectionLost), at each connect."""
    version: Version = 5
    username: str | None = None
    password_file: Path | None = None
    """Read at each connect, so that a changed password needs no restart."""
    keepalive_s: int = 10
    connect_limit_s: float = 5.0
    """For address, TCP and TLS together, and again for the broker's answer."""
    tls: TlsFiles | None = None
    """None: in the clear."""

    @property
    def address(self) -> str:
        """For messages."""
        return f"{self.host}:{self.port}"

    @property
    def client_id(self) -> str:
        """Unique in the plant, because the base topic is."""
        return "inspectd-" + self.base.replace("/", "-")

    @property
    def status_topic(self) -> str:
        """Also the last will's."""
        return f"{self.base}/status"

    def password(self) -> str | None:
        """Read the password; a line end after it does not belong to it. Raises OutsideError."""
        if self.password_file is None:
            return None
        try:
            return self.password_file.read_text("utf-8").rstrip("\r\n")
        except OSError as fault:
            raise OutsideError(f"mqtt.password_file {self.password_file} cannot be read: {fault.strerror}") from fault
        except UnicodeDecodeError:  # its words, and the fault itself, hold a part of the password
            raise OutsideError(f"mqtt.password_file {self.password_file} is not UTF-8; write it anew") from None


@dataclass(frozen=True, slots=True)
class Welcome:
    """What the broker said to our CONNECT."""

    packet_limit_bytes: int
    """Of a whole packet from us."""
    window: int
    """Messages in flight that it takes."""


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a connection is over."""

    reason: str
    by_broker: bool = False
    """The broker ended it: perhaps because of what was sent."""
    code: int | None = None
    """The MQTT reason code, where the broker gave one."""


class Refused(OutsideError):
    """The broker said no to our CONNECT: trying again helps when somebody mends it."""

    def __init__(self, message: str, reason: int) -> None:
        super().__init__(message)
        self.reason = reason


class Listener(Protocol):
    """Who is told what the broker says. Called from the event loop, never from inside paho."""

    def acknowledged(self, token: int, reason: int) -> None:
        """Take the answer to a `Send`."""

    def received(self, incoming: Incoming) -> None:
        """Take a message from a subscription."""

    def subscribed(self, topic: str, reason: int) -> None:
        """Take the answer to a subscription: an MQTT reason code."""
