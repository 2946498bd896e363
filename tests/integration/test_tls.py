from __future__ import annotations

import asyncio
import os
import shutil
import socket
import ssl
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from tests.integration.certificates import Authority, Pair, encrypted
from tests.integration.mosquitto import CI, Mosquitto, TlsListener, binary, mosquitto, subscriber
from tests.integration.test_publisher import BASE, LIMIT_S, WILL, Memory, running

from inspectd import RELEASED
from inspectd.demo.subscriber import Subscriber
from inspectd.errors import OutsideError
from inspectd.publish import tls
from inspectd.publish.broker import BrokerSettings, TlsFiles
from inspectd.publish.mqtt import Connection
from inspectd.publish.validity import Validity

pytestmark = pytest.mark.broker

PLANT = Authority()


def listener(server: Pair | None = None, client_ca: bytes | None = None) -> TlsListener:
    """What a right broker shows."""
    pair = PLANT.server() if server is None else server
    return TlsListener(pair.certificate, pair.key, client_ca)


def settings(broker: Mosquitto, files: TlsFiles | None, **changes: Any) -> BrokerSettings:
    rest: dict[str, Any] = {"port": broker.tls_port, "keepalive_s": 1, "connect_limit_s": 2.0} | changes
    return BrokerSettings("127.0.0.1", base=BASE, will=lambda: WILL, tls=files, **rest)


def authority(folder: Path, ca: bytes = PLANT.pem) -> TlsFiles:
    path = folder / "ca.pem"
    path.write_bytes(ca)
    return TlsFiles(path)


async def trouble(wanted: BrokerSettings) -> str:
    """Give what the publisher says of the first try."""
    async with running(wanted, Memory()) as publisher:
        await publisher.until(lambda: bool(publisher.last_error))
        return publisher.last_error


@pytest.mark.parametrize("version", [5, "3.1.1"])
async def test_everything_goes_over_tls_with_a_client_certificate(version: Any, tmp_path: Path) -> None:
    memory, files = Memory(), PLANT.client().in_folder(tmp_path, PLANT.pem)
    with mosquitto(tls=listener(client_ca=PLANT.pem)) as broker:
        async with (
            subscriber(broker.port, f"{BASE}/result") as plant,
            running(settings(broker, files, version=version), memory) as publisher,
        ):
            publisher.committed(memory.commit(300))
            assert await publisher.drained(LIMIT_S)
            await plant.until(lambda messages: len(messages) >= 300)


class Inbox:
    """A listener of one connection that counts."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        self.changed = asyncio.Event()
        self.is_subscribed = False

    def acknowledged(self, token: int, reason: int) -> None:
        """Nothing is published here."""

    def received(self, incoming: Any) -> None:
        self.payloads.append(incoming.payload)
        self.changed.set()

    def subscribed(self, topic: str, reason: int) -> None:
        assert (topic, reason) == ("burst", 0)
        self.is_subscribed = True
        self.changed.set()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(LIMIT_S):
            while len(self.payloads) < count or not self.is_subscribed:
                self.changed.clear()
                await self.changed.wait()


async def test_a_burst_of_messages_in_one_tls_record_is_read_to_its_end(tmp_path: Path) -> None:
    """What TLS has decrypted already does not make the socket readable: waiting for that leaves messages behind."""
    inbox, server = Inbox(), PLANT.server()
    pair = tmp_path / "server.pem"
    pair.write_bytes(server.certificate + server.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair)
    publishes = b"".join(b"\x30\x0a\x00\x05burst%03d" % number for number in range(400))  # QoS 0, 3.1.1

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\x00\x04MQTT")
        writer.write(b"\x20\x02\x00\x00")
        await reader.readuntil(b"\x00\x05burst")
        writer.write(b"\x90\x03\x00\x01\x00" + publishes)
        await writer.drain()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context) as broker:
        port = int(broker.sockets[0].getsockname()[1])
        wanted = BrokerSettings(
            "127.0.0.1", port, BASE, lambda: WILL, keepalive_s=60, connect_limit_s=5.0, tls=authority(tmp_path)
        )
        connection = Connection(wanted, "3.1.1", inbox, time.monotonic)
        await connection.open()
        sock = connection._sock
        assert isinstance(sock, ssl.SSLSocket)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        connection.subscribe("burst")
        await inbox.until(400)
        connection.drop("done")
    assert inbox.payloads == [b"%03d" % number for number in range(400)]


async def test_an_exchanged_certificate_is_used_at_the_next_connect_without_a_restart(tmp_path: Path) -> None:
    """Files are read again each time; the refusal by the broker is told as such."""
    files = PLANT.client(to_days=-1.0).in_folder(tmp_path, PLANT.pem)
    with mosquitto(tls=listener(client_ca=PLANT.pem)) as broker:
        async with running(settings(broker, files), Memory()) as publisher:
            await publisher.until(lambda: bool(publisher.last_error))
            assert f"the broker refuses the certificate {files.cert_file}: it has expired" in publisher.last_error
            assert "(valid until " in publisher.last_error
            assert publisher.refusal == publisher.last_error
            left = publisher.certificate_days_left(time.time())
            assert left is not None
            assert -1.1 < left < -0.9
            PLANT.client(to_days=60.0).in_folder(tmp_path, PLANT.pem)
            await publisher.until(lambda: publisher.connected)
            assert publisher.refusal == ""
            left = publisher.certificate_days_left(time.time())
            assert left is not None
            assert 59.0 < left < 61.0


async def test_a_missing_client_certificate_is_named(tmp_path: Path) -> None:
    """With TLS 1.3 the alert comes after the handshake, at the first read; or the first write finds a closed socket."""
    with mosquitto(tls=listener(client_ca=PLANT.pem)) as broker:
        said = await trouble(settings(broker, authority(tmp_path)))
        assert "the broker wants a client certificate; set mqtt.tls.cert_file" in said


async def test_a_client_certificate_of_another_ca_is_named(tmp_path: Path) -> None:
    files = Authority("Other CA").client().in_folder(tmp_path, PLANT.pem)
    with mosquitto(tls=listener(client_ca=PLANT.pem)) as broker:
        said = await trouble(settings(broker, files))
        assert f"the broker refuses the certificate {files.cert_file}: it does not know the CA" in said


async def test_with_tls_1_2_a_refused_client_certificate_is_named_too(tmp_path: Path) -> None:
    """There the alert comes within the handshake."""
    server, files = PLANT.server(), Authority("Other CA").client().in_folder(tmp_path, PLANT.pem)
    pair = tmp_path / "server.pem"
    pair.write_bytes(server.certificate + server.key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=files.ca_file)
    context.verify_mode = ssl.CERT_REQUIRED
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(pair)

    def refuse(broker: socket.socket) -> None:
        plain, _ = broker.accept()
        with plain, pytest.raises(ssl.SSLError):  # asyncio's server would not send the alert
            context.wrap_socket(plain, server_side=True)

    with socket.create_server(("127.0.0.1", 0)) as broker:
        broker.settimeout(LIMIT_S)
        port = int(broker.getsockname()[1])
        wanted = BrokerSettings("127.0.0.1", port, BASE, lambda: WILL, connect_limit_s=2.0, tls=files)
        said, _ = await asyncio.gather(trouble(wanted), asyncio.to_thread(refuse, broker))
        assert f"the broker refuses the certificate {files.cert_file}: it does not know the CA" in said


@pytest.mark.parametrize(
    ("server", "says"),
    [
        (Authority("Other CA").server(), ("a CA of CN=Other CA that is not in", "ca.pem")),
        (PLANT.server(["mes-broker", "10.0.0.5"]), ("is for mes-broker and 10.0.0.5, not for 127.0.0.1", "mqtt.host")),
        (PLANT.server(to_days=-0.5), ("the broker's certificate expired on 20", "renew it on the broker")),
        (PLANT.server(from_days=1.0), ("is not valid yet until 20", "this PC's clock says 20", "set the clock")),
    ],
    ids=["unknown CA", "other name", "expired", "not yet valid"],
)
async def test_a_certificate_of_the_broker_that_is_wrong_is_said_with_its_cure(
    server: Pair, says: tuple[str, ...], tmp_path: Path
) -> None:
    with mosquitto(tls=listener(server)) as broker:
        said = await trouble(settings(broker, authority(tmp_path)))
        assert not [words for words in says if words not in said], said


async def test_an_expired_ca_is_told_apart_from_an_expired_certificate(tmp_path: Path) -> None:
    old = Authority("Old CA", days=-1.0)
    with mosquitto(tls=listener(old.server())) as broker:
        assert "the certificate of the broker's CA has expired" in await trouble(
            settings(broker, authority(tmp_path, old.pem))
        )


async def test_the_demo_listens_over_tls_too(tmp_path: Path) -> None:
    """`inspectd demo -c FILE --broker HOST`: the user's broker, with the user's certificates."""
    with mosquitto(tls=listener(client_ca=PLANT.pem)) as broker:
        files = PLANT.client().in_folder(tmp_path, PLANT.pem)
        async with subscriber(broker.port, f"{BASE}/rsp/mes") as plant:
            with Subscriber("127.0.0.1", broker.tls_port, BASE, tls=files) as heard:
                plant.publish(f"{BASE}/result", b'{"seq":1}')
                message = await asyncio.to_thread(heard.next, LIMIT_S)
                assert message is not None
                assert message.document == {"seq": 1}
        wrong = authority(tmp_path, Authority("Other CA").pem)
        with pytest.raises(OutsideError, match=r"is signed by a CA of CN=Plant CA that is not in .*ca\.pem"):
            await asyncio.to_thread(Subscriber("127.0.0.1", broker.tls_port, BASE, tls=wrong).__enter__)


async def test_without_a_ca_file_the_authorities_of_this_pc_count() -> None:
    with mosquitto(tls=listener()) as broker:
        assert "not in the authorities of this PC" in await trouble(settings(broker, TlsFiles()))


async def test_a_port_without_tls_is_named(tmp_path: Path) -> None:
    with mosquitto() as broker:
        said = await trouble(settings(broker, authority(tmp_path), port=broker.port))
        assert f"port {broker.port} is perhaps its port without TLS: see mqtt.port" in said


async def test_a_port_with_tls_is_named_to_whom_speaks_in_the_clear() -> None:
    with mosquitto(tls=listener()) as broker:
        said = await trouble(settings(broker, None))
        assert f"if port {broker.tls_port} is its port for TLS, set mqtt.tls" in said


@pytest.mark.parametrize("fault", ["missing", "not PEM", "encrypted", "of another"])
async def test_a_file_that_cannot_be_used_is_named_and_mended_without_a_restart(fault: str, tmp_path: Path) -> None:
    """A password that nobody can type must not make the daemon wait at a terminal."""
    files = PLANT.client().in_folder(tmp_path, PLANT.pem)
    assert files.key_file is not None
    right = files.key_file.read_bytes()
    if fault == "missing":
        files.key_file.unlink()
    elif fault == "not PEM":
        files.key_file.write_bytes(b"hunter2")
    elif fault == "encrypted":
        files.key_file.write_bytes(encrypted(Pair(b"", right), b"hunter2").key)
    else:
        files.key_file.write_bytes(PLANT.client().key)
    what = {
        "missing": "cannot be read: No such file",
        "not PEM": "holds no private key in PEM form",
        "encrypted": "is encrypted: nobody can type its password here",
        "of another": f"is not the key of {files.cert_file}",
    }[fault]
    with mosquitto(tls=listener(client_ca=PLANT.pem)) as broker:
        async with running(settings(broker, files), Memory()) as publisher:
            await publisher.until(lambda: bool(publisher.last_error))
            assert publisher.last_error.startswith(f"mqtt.tls.key_file {files.key_file} {what}")
            assert "hunter2" not in publisher.last_error
            files.key_file.write_bytes(right)
            await publisher.until(lambda: publisher.connected)


@pytest.mark.parametrize("name", ["ca_file", "cert_file"])
async def test_a_certificate_file_that_is_none_is_named(name: str, tmp_path: Path) -> None:
    files = PLANT.client().in_folder(tmp_path, PLANT.pem)
    path = getattr(files, name)
    path.write_bytes(b"\x30\x82der")
    with mosquitto(tls=listener()) as broker:
        assert (await trouble(settings(broker, files))).startswith(f"mqtt.tls.{name} {path} holds no certificate")


async def test_a_broker_that_says_nothing_in_the_handshake_is_given_up_in_time(tmp_path: Path) -> None:
    """The handshake blocks in a thread of its own, and has the deadline of the dial."""
    with mosquitto(tls=listener()) as broker, broker.stop_cont():
        began_s = time.monotonic()
        said = await trouble(settings(broker, authority(tmp_path), connect_limit_s=0.5))
        assert "no answer from 127.0.0.1" in said
        assert time.monotonic() - began_s < 2.0


async def test_the_certificate_that_ends_first_counts(tmp_path: Path) -> None:
    """Ours, the broker's, and the CA of these two; another CA in the same file does not."""
    other = Authority("Other CA", days=2.0)
    short = Authority("Short CA", days=20.0)
    with mosquitto(tls=listener(short.server(to_days=25.0))) as broker:
        files = PLANT.client(to_days=30.0).in_folder(tmp_path, PLANT.pem + other.pem + short.pem)
        async with running(settings(broker, files), Memory()) as publisher:
            before = publisher.certificate_days_left(time.time())
            await publisher.until(lambda: publisher.connected)
            after = publisher.certificate_days_left(time.time())
            assert before is not None
            assert after is not None
            assert (round(before), round(after)) == (30, 20)


def test_without_tls_there_is_no_certificate_to_end() -> None:
    assert Validity(TlsFiles()).days_left(None, 0.0) is None


def test_a_certificate_that_is_none_is_not_known() -> None:
    assert Validity(TlsFiles()).days_left(b"\x30\x03\x02\x01\x01", 0.0) is None


def test_the_files_are_read_again_only_when_one_of_them_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody asks every second, in the event loop; a plant's bundle may have hundreds of authorities."""
    reads: list[Path] = []
    read_bytes = Path.read_bytes

    def noted(path: Path) -> bytes:
        reads.append(path)
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", noted)
    files = PLANT.client(to_days=30.0).in_folder(tmp_path, PLANT.pem)
    validity = Validity(files)
    first = validity.days_left(None, 0.0)
    assert first is not None
    assert validity.days_left(None, 86_400.0) == pytest.approx(first - 1.0)
    assert reads == [files.cert_file, files.ca_file]
    PLANT.client(to_days=60.0).in_folder(tmp_path, PLANT.pem)
    assert validity.days_left(None, 0.0) == pytest.approx(first + 30.0, abs=0.1)
    assert len(reads) == 4


def odd_authority(folder: Path) -> tuple[TlsFiles, Pair]:
    """An authority on a curve that OpenSSL has and `cryptography` has not, and a broker's certificate from it."""

    def openssl(*words: str) -> None:
        subprocess.run([binary("openssl"), *words], cwd=folder, check=True, timeout=LIMIT_S, capture_output=True)

    (folder / "names").write_text("subjectAltName=IP:127.0.0.1", "ascii")
    for name, curve in (("ca", "prime239v1"), ("server", "prime256v1")):
        openssl("ecparam", "-name", curve, "-genkey", "-noout", "-out", f"{name}.key")
    own = ("-addext", "basicConstraints=critical,CA:TRUE", "-out", "ca.pem")
    openssl("req", "-x509", "-new", "-key", "ca.key", "-subj", "/CN=Odd CA", "-days", "20", *own)
    openssl("req", "-new", "-key", "server.key", "-subj", "/CN=broker", "-out", "server.csr")
    signer = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "names")
    openssl("x509", "-req", "-in", "server.csr", *signer, "-days", "40", "-out", "server.pem")
    pair = Pair((folder / "server.pem").read_bytes(), (folder / "server.key").read_bytes())
    return TlsFiles(folder / "ca.pem"), pair


async def test_a_certificate_that_only_openssl_can_check_connects_and_its_days_are_counted(tmp_path: Path) -> None:
    """The fault of a library that only counts days must not end a daemon whose connection stands."""
    files, pair = odd_authority(tmp_path)
    with mosquitto(tls=listener(pair)) as broker:
        async with running(settings(broker, files), Memory()) as publisher:
            await publisher.until(lambda: publisher.connected)
            left = publisher.certificate_days_left(time.time())
            assert left is not None
            assert round(left) == 20, "the names say that this authority has signed it"


@pytest.mark.parametrize("code", [10, 9])
def test_the_words_stay_the_same_as_long_as_the_reason_does(code: int) -> None:
    """Each new wording is a line of the log and a new `state`: one a minute, for as long as nobody mends it."""
    wanted = BrokerSettings("mes", 8883, BASE, lambda: WILL, tls=TlsFiles())
    noon_s = datetime(2030, 1, 1, 12, tzinfo=UTC).timestamp()
    assert len({tls.verification_words(code, "", wanted, None, noon_s + 60.0 * minute) for minute in range(60)}) == 1


@pytest.mark.parametrize("code", [18, 62])
def test_a_clock_before_this_version_was_made_is_named_with_any_fault(code: int) -> None:
    """A PC whose battery is empty wakes up in 1970, and everything about certificates looks wrong."""
    wanted = BrokerSettings("mes", 8883, BASE, lambda: WILL, tls=TlsFiles())
    certificate = x509.load_pem_x509_certificate(PLANT.server().certificate)
    said = tls.verification_words(code, "", wanted, certificate, 0.0)
    assert f"this PC's clock says 1970-01-01, and this inspectd was made on {RELEASED}: set the" in said
    now = datetime(2100, 1, 1, tzinfo=UTC).timestamp()
    assert "clock" not in tls.verification_words(code, "", wanted, certificate, now)


CHILD = """
import asyncio, sys
from pathlib import Path
from inspectd.publish.broker import BrokerSettings, TlsFiles
from inspectd.publish.journal_door import Journal
from inspectd.publish.publisher import Publisher

async def main(port, ca):
    async def nothing(*_):
        return None
    told = asyncio.Event()
    settings = BrokerSettings("127.0.0.1", int(port), "a/b", lambda: b"", tls=TlsFiles(Path(ca)))
    publisher = Publisher(settings, Journal("s", 0, 0, nothing, lambda seq: None, nothing), lambda answer: b"",
                          on_change=told.set)
    running = asyncio.create_task(publisher.run())
    await told.wait()
    print(publisher.last_error)
    await publisher.close(0.1, b"")
    await running

asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_clock_that_is_wrong_is_named_as_the_cause(tmp_path: Path) -> None:
    """OpenSSL says only that the certificate is not yet valid."""
    faketime = shutil.which("faketime")
    if faketime is None:
        if CI:
            pytest.fail("faketime is not installed, and CI=true")
        pytest.skip("faketime is not installed")
    files = authority(tmp_path)
    with mosquitto(tls=listener()) as broker:
        command = [faketime, "2001-02-03 04:05:06", sys.executable, "-c", CHILD, str(broker.tls_port)]
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / "daemon"), "TZ": "UTC"}
        child = await asyncio.create_subprocess_exec(
            *command, str(files.ca_file), env=environment, stdout=asyncio.subprocess.PIPE
        )
        async with asyncio.timeout(LIMIT_S):
            said, _ = await child.communicate()
    assert b"this PC's clock says 2001-02-03; set the clock" in said
