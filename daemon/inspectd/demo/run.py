"""Runs the demo from its start to its summary. Ctrl-C, SIGTERM and SIGHUP end it in order at any moment."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from inspectd.camera.boards.scene import truth
from inspectd.config.load import load
from inspectd.config.schema import Configuration
from inspectd.demo import configuration as configurations
from inspectd.demo import summary, view
from inspectd.demo.configuration import BrokerAddress
from inspectd.demo.daemon import DaemonProcess
from inspectd.demo.pictures import SavedPictures
from inspectd.demo.score import Score
from inspectd.demo.subscriber import Message, Subscriber
from inspectd.demo.table import LiveTable
from inspectd.errors import OutsideError
from inspectd.slices import broker_settings

EXIT_DONE, EXIT_INTERNAL = 0, 70

_START_LIMIT_S = 60.0
"""A first start compiles the model; a loaded PC takes its time."""
_END_LIMIT_S = 20.0
"""The daemon's own drain has a deadline below this."""
_SETTLE_S = 0.5
"""Of silence after the daemon's end: then its last messages have come."""
_POLL_S = 0.1
_MESSAGES_PER_TURN = 1000


def run_demo(
    *,
    config: Path | None,
    seconds: float,
    json_output: bool,
    broker: tuple[str, int] | None,
    out: TextIO,
    save: Path | None = None,
) -> int:
    """Show the whole chain for so many seconds, then say how it did, and save the first pictures in `save`.

    Returns 0, or 70 if the daemon did not end in order or its sum is not exact. Raises ConfigurationError for `config`,
    UsageError for `save` beside a camera that is not simulated, and OutsideError with the daemon's last log lines if it
    does not come up, ends too early or gives no result.
    """
    console = view.console_for(out)
    with _stop_signals() as stopped, tempfile.TemporaryDirectory(prefix="inspectd-demo-") as name, ExitStack() as stack:
        folder = Path(name)
        document = (
            configurations.packaged()
            if config is None
            else configurations.own(load(config, env=os.environ).configuration)
        )
        address = BrokerAddress(*broker, embedded=False) if broker else stack.enter_context(_embedded_broker())
        configuration = _write_configuration(document, folder, address)
        pictures = None if save is None else SavedPictures(save, configuration)
        subscriber = stack.enter_context(_subscriber(configuration, address))
        daemon = stack.enter_context(DaemonProcess(folder / "inspectd.yaml", folder / "daemon.log"))
        demo = _Demo(configuration, subscriber, daemon, stopped, pictures)
        with view.opened(demo.table, console, silent=json_output) as show:
            shown_s = demo.run(seconds, show)
        said = summary.summarise(demo.table, demo.score, shown_s, unheard=subscriber.dropped)
        if pictures is not None:
            said["savedPictures"] = pictures.write()
        if json_output:
            print(json.dumps(said, indent=2), file=out)
        else:
            console.print(summary.text(said))
            if pictures is not None:
                console.print(f"{said['savedPictures']} annotated pictures in {save}", soft_wrap=True)
        return demo.exit_code(said)


@dataclass
class _Demo:
    """The running demo: messages go into the table and the score until each stage is over."""

    configuration: Configuration
    subscriber: Subscriber
    daemon: DaemonProcess
    stopped: threading.Event
    pictures: SavedPictures | None

    def __post_init__(self) -> None:
        least = configurations.least_confidence(self.configuration)
        self._simulators = configurations.simulators(self.configuration)
        self.table = LiveTable(self.configuration.cameras, least)
        self.score = Score(least) if self._simulators else None

    def run(self, seconds: float, show: view.View) -> float:
        """Wait for the daemon, show it, and end it. Returns how long it was shown."""
        begun_s = time.monotonic()
        self._follow(lambda now_s: self.table.is_up or now_s - begun_s > _START_LIMIT_S, lambda _: show(0.0, seconds))
        if not self.table.is_up and not self.stopped.is_set():
            in_time = f" within {_START_LIMIT_S:.0f} s" if self.daemon.exit_code is None else ""
            raise self._failure(f"did not come up{in_time}")
        up_s = time.monotonic()
        self._follow(lambda now_s: now_s - up_s >= seconds, lambda now_s: show(now_s - up_s, seconds))
        if self.daemon.exit_code is not None:
            raise self._failure("ended too early")
        shown_s = time.monotonic() - up_s
        if not self.table.results and not self.stopped.is_set():
            raise self._failure(f"gave no result in {shown_s:.0f} s")
        self._end(lambda: show(shown_s, seconds))
        return shown_s

    def exit_code(self, document: dict[str, Any]) -> int:
        """Judge the end; what is wrong with it goes to standard error."""
        code = self.daemon.exit_code
        accounting = document["accounting"]
        if code is None:
            fault = f"the daemon did not end within {_END_LIMIT_S:.0f} s and was killed"
        elif code != 0 and not self._was_stopped_early(code):
            fault = f"the daemon ended with exit code {code}"
        elif accounting is not None and not accounting["exact"]:
            fault = "captured is not the sum of all verdicts"
        else:
            return EXIT_DONE
        sys.stderr.write(f"{fault}\n{self._log()}\n")
        return EXIT_INTERNAL

    def _was_stopped_early(self, code: int) -> bool:
        """Whether SIGTERM met a daemon that could not hear it yet, because somebody stopped the demo at once."""
        return code == -signal.SIGTERM and self.stopped.is_set() and not self.table.is_up

    def _follow(self, is_over: Callable[[float], bool], draw: Callable[[float], None]) -> None:
        """Take messages until the stage is over, somebody stops the demo, or the daemon ends."""
        while not (self.stopped.is_set() or self.daemon.exit_code is not None or is_over(time.monotonic())):
            self._take(_POLL_S)
            draw(time.monotonic())

    def _end(self, draw: Callable[[], None]) -> None:
        """Ask the daemon to end and hear it out: its last results and counters come now."""
        self.table.is_ending = True
        self.daemon.terminate()
        until_s = time.monotonic() + _END_LIMIT_S
        while self.daemon.exit_code is None and time.monotonic() < until_s:
            self._take(_POLL_S)
            draw()
        until_s = time.monotonic() + _END_LIMIT_S
        while self.daemon.exit_code is not None and time.monotonic() < until_s and self._take(_SETTLE_S):
            draw()

    def _take(self, timeout_s: float) -> bool:
        """Take what has come, waiting at most so long for the first. Returns whether anything had come."""
        message = self.subscriber.next(timeout_s)
        came = message is not None
        for _ in range(_MESSAGES_PER_TURN):
            if message is None:
                break
            self._add(message)
            message = self.subscriber.next(0)
        return came

    def _add(self, message: Message) -> None:
        self.table.add(message.leaf, message.document, time.monotonic())
        if message.leaf != "result" or self.score is None:
            return
        if self.pictures is not None:
            self.pictures.add(message.document)
        acquisition = message.document["acquisition"]
        source = self._simulators.get(acquisition["cameraId"])
        if source is not None:
            boxes = truth(source.seed, acquisition["frameId"], source.width, source.height)
            self.score.add(boxes, message.document)

    def _failure(self, what: str) -> OutsideError:
        code = self.daemon.exit_code
        end = "" if code is None else f" (exit code {code})"
        reasons = "; ".join(self.table.state.get("reasons", ()))
        return OutsideError(f"the daemon {what}{end}{': ' if reasons else ''}{reasons}\n{self._log()}")

    def _log(self) -> str:
        return "\n".join(["the last lines of its log:", *(f"  {line}" for line in self.daemon.last_lines(20))])


@contextmanager
def _stop_signals() -> Iterator[threading.Event]:
    """Set the event instead of raising anywhere. Only the main thread may hear signals; in others nothing changes."""
    stopped = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return
    names = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {name: signal.signal(name, lambda _number, _frame: stopped.set()) for name in names}
    try:
        yield stopped
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


@contextmanager
def _embedded_broker() -> Iterator[BrokerAddress]:
    try:
        from inspectd.demo.broker import HOST, EmbeddedBroker
    except ModuleNotFoundError as error:
        raise OutsideError(
            f"the embedded broker needs {error.name}: pip install 'inspectd[demo]', or give --broker HOST[:PORT]"
        ) from error
    with EmbeddedBroker() as broker:
        yield BrokerAddress(HOST, broker.port, embedded=True)


def _write_configuration(document: Mapping[str, Any], folder: Path, address: BrokerAddress) -> Configuration:
    changed = configurations.overlaid(document, address, folder / "storage")
    (folder / "storage").mkdir()
    (folder / "inspectd.yaml").write_text(configurations.as_yaml(changed), "utf-8")
    return Configuration.model_validate(changed)


def _subscriber(configuration: Configuration, address: BrokerAddress) -> Subscriber:
    settings = broker_settings(configuration, "")
    return Subscriber(
        address.host,
        address.port,
        configuration.base_topic,
        username=settings.username,
        password=settings.password(),
        tls=settings.tls,
    )
