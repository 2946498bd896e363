"""TLS to the broker: what one connect needs, every failure in words. Knows no MQTT."""

from __future__ import annotations

import socket
import ssl
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

from cryptography import x509

from inspectd import RELEASED
from inspectd.errors import OutsideError
from inspectd.publish.broker import BrokerSettings, TlsFiles
from inspectd.publish.validity import UNREADABLE, readable

LOOK_LIMIT_S = 1.0
"""For a second look at a certificate that was not trusted, so that the message can say whose it is."""
_NOT_YET_VALID, _EXPIRED = 9, 10
_UNKNOWN_ISSUER = frozenset({2, 18, 19, 20, 21})
_OTHER_NAME = frozenset({62, 64})
"""OpenSSL's X509_V_ERR numbers."""
_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "UNKNOWN_PROTOCOL"})
_ALERTS = {
    "CERTIFICATE_REQUIRED": "the broker wants a client certificate; set mqtt.tls.cert_file and mqtt.tls.key_file",
    "CERTIFICATE_EXPIRED": "the broker refuses {own}: it has expired; put a new one there, no restart is needed",
    "CERTIFICATE_REVOKED": "the broker refuses {own}: it was revoked; have a new one made",
    "UNKNOWN_CA": "the broker refuses {own}: it does not know the CA that signed it; have the right CA sign it, or "
    "give that CA to the broker (its cafile)",
    "BAD_CERTIFICATE": "the broker refuses {own}; its log says why",
    "CERTIFICATE_UNKNOWN": "the broker refuses {own}; its log says why",
    "UNSUPPORTED_CERTIFICATE": "the broker refuses {own}: it was made for another purpose; it needs clientAuth",
    "ACCESS_DENIED": "the broker refuses {own}: not authorised",
    "DECRYPT_ERROR": "the broker refuses {own}: the signature does not fit",
    "HANDSHAKE_FAILURE": "the broker ended the TLS handshake: it wants a client certificate (mqtt.tls.cert_file), or "
    "shares no cipher with this PC",
    "PROTOCOL_VERSION": "broker and this PC share no version of TLS; inspectd needs 1.2 or 1.3",
    "UNRECOGNIZED_NAME": "the broker serves no such host name; see mqtt.host",
}
"""TLS alerts (RFC 8446, 6.2) by their end in OpenSSL's names. `own` is our certificate."""


class HandshakeError(Exception):
    """The handshake failed; the cause is the fault."""


class TlsSocket(ssl.SSLSocket):
    """Keeps the fault that ended it, which paho does not tell: a TLS 1.3 broker refuses our certificate at a read."""

    fault: ssl.SSLError | None = None

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        """Read, and note why that is over."""
        try:
            return super().recv(buflen, flags)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as fault:
            self.fault = fault
            raise

    def send(self, data: Any, flags: int = 0) -> int:
        """Write; where that is over, the broker's last words may still lie there to be read."""
        try:
            return super().send(data, flags)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except OSError:
            with suppress(OSError):
                self.recv(1)
            raise

    def do_handshake(self, block: bool = False) -> None:
        """Shake hands; close when that fails. Raises TimeoutError and HandshakeError."""
        try:
            super().do_handshake(block)
        except TimeoutError:
            self.close()
            raise
        except OSError as fault:
            self.close()
            raise HandshakeError from fault


def make_context(files: TlsFiles) -> ssl.SSLContext:
    """Read the files. Raises OutsideError, which says which file is wrong and how to mend it.

    OpenSSL is the judge: it takes certificates that cannot be read in any other way here.
    """
    try:
        context = ssl.create_default_context(cafile=files.ca_file)
    except ssl.SSLError as fault:
        raise OutsideError(f"mqtt.tls.ca_file {files.ca_file} holds no certificate in PEM form: {fault}") from fault
    except OSError as fault:
        raise OutsideError(f"mqtt.tls.ca_file {files.ca_file} cannot be read: {fault.strerror}") from fault
    # The same rules by each Python: 3.13 alone would refuse the plain CAs that plants make themselves.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.sslsocket_class = TlsSocket
    if files.cert_file is not None and files.key_file is not None:
        _load_own(context, files.cert_file, files.key_file)
    return context


def handshake_words(fault: BaseException | None, settings: BrokerSettings, limit_s: float) -> str:
    """Say why the handshake failed. May look at the broker's certificate once more, for at most `limit_s`."""
    if isinstance(fault, ssl.SSLCertVerificationError):
        shown = _look(settings, min(limit_s, LOOK_LIMIT_S))
        told = fault.verify_code, fault.verify_message, settings
        try:
            return verification_words(*told, shown, time.time())
        except UNREADABLE:
            return verification_words(*told, None, time.time())
    if isinstance(fault, ssl.SSLError) and "_ALERT_" in (fault.reason or ""):
        return alert_words(fault, settings.tls)
    is_plain = isinstance(fault, ssl.SSLError) and fault.reason in _NO_TLS
    if is_plain or isinstance(fault, (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionError)):
        what = "answers without TLS" if is_plain else "ends the TLS handshake"
        return f"the broker {what}; port {settings.port} is perhaps its port without TLS: see mqtt.port and mqtt.tls"
    return f"the TLS handshake failed: {fault}"


def verification_words(
    code: int, message: str, settings: BrokerSettings, shown: x509.Certificate | None, wall_s: float
) -> str:
    """Say why the broker's certificate (`shown`, if it could be had) is not trusted: an X509_V_ERR number of OpenSSL.

    A clock that is behind the making of this version is named as the cause: an engineer would look everywhere else.
    Of its time only the day is said: the words are the same as long as the reason is.
    """
    clock = f"this PC's clock says {_day(wall_s)}"
    is_clock_wrong = wall_s < datetime.combine(RELEASED, datetime.min.time(), UTC).timestamp()
    if code == _NOT_YET_VALID:
        since = f" until {_moment(shown.not_valid_before_utc)}" if shown is not None else ""
        return f"the broker's certificate is not valid yet{since}: {clock}; set the clock"
    doubt = f"; {clock}, and this inspectd was made on {RELEASED}: set the clock first" if is_clock_wrong else ""
    tls = settings.tls or TlsFiles()
    if code == _EXPIRED:
        if shown is not None and shown.not_valid_after_utc.timestamp() > wall_s:
            return f"the certificate of the broker's CA has expired ({clock}); renew it there and in mqtt.tls.ca_file"
        when = f" on {_moment(shown.not_valid_after_utc)}" if shown is not None else ""
        return f"the broker's certificate expired{when} ({clock}); renew it on the broker"
    if code in _OTHER_NAME:
        names = f" is for {' and '.join(_names(shown))}," if shown is not None else " is"
        return (
            f"the broker's certificate{names} not for {settings.host}; give mqtt.host as the certificate has it, or "
            f"have one made with {settings.host} in it{doubt}"
        )
    if code in _UNKNOWN_ISSUER:
        signer = f" of {shown.issuer.rfc4514_string()}" if shown is not None else ""
        trusted = "the authorities of this PC" if tls.ca_file is None else str(tls.ca_file)
        return (
            f"the broker's certificate is signed by a CA{signer} that is not in {trusted}; put the plant's CA "
            f"certificate there (mqtt.tls.ca_file){doubt}"
        )
    return f"the broker's certificate cannot be trusted: {message}{doubt}"


def alert_words(fault: ssl.SSLError, files: TlsFiles | None) -> str:
    """Say what the broker's alert means, in the handshake or (TLS 1.3: a refused client certificate) after it."""
    reason = fault.reason or str(fault)
    own_file = None if files is None else files.cert_file
    own = "our missing client certificate (mqtt.tls.cert_file)" if own_file is None else f"the certificate {own_file}"
    template = _ALERTS.get(reason.partition("_ALERT_")[2] or reason.rpartition("TLSV1_")[2])
    text = f"TLS: {reason.lower().replace('_', ' ')}" if template is None else template.format(own=own)
    return text + _validity(own_file)


def _load_own(context: ssl.SSLContext, cert_file: Path, key_file: Path) -> None:
    _, key = _content("cert_file", cert_file), _content("key_file", key_file)

    def no_password() -> NoReturn:
        cure = "nobody can type its password here; `openssl pkey -in KEY -out PLAIN`, mode 0600"
        raise OutsideError(f"mqtt.tls.key_file {key_file} is encrypted: {cure}")

    try:
        context.load_cert_chain(cert_file, key_file, no_password)
    except ssl.SSLError as fault:
        if not readable(cert_file):
            raise OutsideError(f"mqtt.tls.cert_file {cert_file} holds no certificate in PEM form: {fault}") from fault
        if fault.reason == "KEY_VALUES_MISMATCH":
            what = f"is not the key of {cert_file}; give the key that this certificate was made for"
        elif b"PRIVATE KEY-----" not in key:
            what = "holds no private key in PEM form"
        else:
            what = f"cannot be used with {cert_file}: {fault}"
        raise OutsideError(f"mqtt.tls.key_file {key_file} {what}") from fault


def _content(name: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as fault:
        raise OutsideError(f"mqtt.tls.{name} {path} cannot be read: {fault.strerror}") from fault


def _look(settings: BrokerSettings, limit_s: float) -> x509.Certificate | None:
    """Read the broker's certificate without trusting it, and send nothing."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection((settings.host, settings.port), max(0.01, limit_s)) as plain,
            context.wrap_socket(plain, server_hostname=settings.host) as sock,
        ):
            certificate = sock.getpeercert(binary_form=True)
            return x509.load_der_x509_certificate(certificate) if certificate else None
    except (OSError, *UNREADABLE):
        return None


def _names(certificate: x509.Certificate) -> list[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except UNREADABLE:
        return [certificate.subject.rfc4514_string()]
    addresses = names.get_values_for_type(x509.IPAddress)
    return [*names.get_values_for_type(x509.DNSName), *map(str, addresses)] or [certificate.subject.rfc4514_string()]


def _validity(path: Path | None) -> str:
    certificates = readable(path)
    return f" (valid until {_moment(certificates[0].not_valid_after_utc)})" if certificates else ""


def _day(wall_s: float) -> str:
    return f"{datetime.fromtimestamp(wall_s, UTC):%Y-%m-%d}"


def _moment(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
