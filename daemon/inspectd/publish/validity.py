"""How long the certificates of the connection last: ours, the broker's, and those of the authorities behind them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

from inspectd.publish.broker import TlsFiles

DAY_S = 86_400.0
UNREADABLE = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.ExtensionNotFound,
    x509.UnsupportedGeneralNameType,
)
"""What `cryptography` says of a certificate that it does not take. OpenSSL may take it all the same."""

Mark = tuple[int, int, int] | None
"""What changes with a file's content: inode, size, time of the last change. None: it cannot be looked at."""


class Validity:
    """Reads the files once, and again when one has changed or the broker shows another certificate."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._read_at: tuple[Mark, Mark, bytes | None] | None = None
        self._ends_s: float | None = None

    def days_left(self, server: bytes | None, wall_s: float) -> float | None:
        """Give the days until the first certificate ends: ours, the broker's last one (DER), the CAs of these two.

        None: not known of any. What cannot be read is left out: of our own files the next connect says what is wrong,
        and OpenSSL, which makes the connection, takes more kinds of keys and certificates than can be read here.
        """
        now = _mark(self._files.cert_file), _mark(self._files.ca_file), server
        if now != self._read_at:
            self._read_at = now
            self._ends_s = _first_end_s(self._files, server)
        return None if self._ends_s is None else (self._ends_s - wall_s) / DAY_S


def readable(path: Path | None) -> list[x509.Certificate]:
    """Give the certificates of a file; none if it cannot be read."""
    try:
        return [] if path is None else x509.load_pem_x509_certificates(path.read_bytes())
    except (OSError, *UNREADABLE):
        return []


def _mark(path: Path | None) -> Mark:
    try:
        found = None if path is None else path.stat()
    except OSError:
        return None
    return None if found is None else (found.st_ino, found.st_size, found.st_ctime_ns)


def _first_end_s(files: TlsFiles, server: bytes | None) -> float | None:
    leaves = [*readable(files.cert_file)[:1], *_shown(server)]
    everything = (*leaves, *_in_use(leaves, readable(files.ca_file)))
    return min((certificate.not_valid_after_utc.timestamp() for certificate in everything), default=None)


def _shown(server: bytes | None) -> list[x509.Certificate]:
    try:
        return [] if server is None else [x509.load_der_x509_certificate(server)]
    except UNREADABLE:
        return []


def _in_use(leaves: Iterable[x509.Certificate], authorities: list[x509.Certificate]) -> Iterator[x509.Certificate]:
    """Follow the issuers upwards. Of a CA that was renewed under the same key, the certificate that lasts longest."""
    for leaf in leaves:
        below: x509.Certificate | None = leaf
        for _ in authorities:
            issuers = [ca for ca in authorities if below is not None and ca != below and _has_issued(ca, below)]
            below = max(issuers, key=lambda ca: ca.not_valid_after_utc, default=None)
            if below is None:
                break
            yield below


def _has_issued(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
    """Say whether it did, by the signature; by the names alone where the kind of key is not known here."""
    try:
        is_named = authority.subject == certificate.issuer
    except UNREADABLE:
        return False
    try:
        if is_named:
            certificate.verify_directly_issued_by(authority)
    except InvalidSignature:
        return False
    except UNREADABLE:
        return True
    return is_named
