"""A certificate authority for one test: makes certificates for brokers and clients, right and wrong ones."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from inspectd.publish.broker import TlsFiles


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, both PEM."""

    certificate: bytes
    key: bytes

    def in_folder(self, folder: Path, ca: bytes, name: str = "client") -> TlsFiles:
        """Write both, and the authority that the broker is to have."""
        files = TlsFiles(folder / "ca.pem", folder / f"{name}.pem", folder / f"{name}.key")
        for path, content in ((files.ca_file, ca), (files.cert_file, self.certificate), (files.key_file, self.key)):
            assert path is not None
            path.write_bytes(content)
        return files


class Authority:
    """Signs; times are days from now."""

    def __init__(self, name: str = "Plant CA", *, days: float = 3650.0) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _builder(self._name, self._name, self._key, from_days=-400.0, to_days=days).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self._certificate = builder.sign(self._key, hashes.SHA256())

    @property
    def pem(self) -> bytes:
        """Its own certificate."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def server(self, names: Iterable[str] = ("127.0.0.1",), *, from_days: float = -1.0, to_days: float = 90.0) -> Pair:
        """Make a broker's certificate for names and addresses."""
        return self._issue("broker", tuple(names), ExtendedKeyUsageOID.SERVER_AUTH, from_days, to_days)

    def client(self, name: str = "aoi-01", *, from_days: float = -30.0, to_days: float = 90.0) -> Pair:
        """Make a client's certificate."""
        return self._issue(name, (), ExtendedKeyUsageOID.CLIENT_AUTH, from_days, to_days)

    def _issue(
        self, name: str, names: tuple[str, ...], usage: x509.ObjectIdentifier, from_days: float, to_days: float
    ) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _builder(subject, self._name, key, from_days=from_days, to_days=to_days).add_extension(
            x509.ExtendedKeyUsage([usage]), critical=False
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName([_general(each) for each in names]), False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return Pair(certificate.public_bytes(serialization.Encoding.PEM), _pem(key, serialization.NoEncryption()))


def encrypted(pair: Pair, password: bytes) -> Pair:
    """Give the same with the key encrypted."""
    key = serialization.load_pem_private_key(pair.key, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return Pair(pair.certificate, _pem(key, serialization.BestAvailableEncryption(password)))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, *, from_days: float, to_days: float
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(days=from_days))
        .not_valid_after(now + timedelta(days=to_days))
    )


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(key: ec.EllipticCurvePrivateKey, encryption: serialization.KeySerializationEncryption) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
