"""What every result says of the station besides the inspection: who, which start, which clock; and how it is worded."""

from __future__ import annotations

from collections.abc import Callable

from inspectd import __version__
from inspectd.config.schema import Configuration
from inspectd.health.clock import read_clock
from inspectd.publish import messages
from inspectd.publish.journal import Encode
from inspectd.records import Inspection


class Context:
    """What every result says of the station; the clock's state is refreshed once a second."""

    def __init__(self, configuration: Configuration, boot_id: str, started_s: float) -> None:
        self._configuration, self._boot_id, self._started_s = configuration, boot_id, started_s
        self.refresh_clock()

    def refresh_clock(self) -> None:
        """Ask the kernel whether the wall clock is right."""
        source, state = self._configuration.station.clock, read_clock()
        self.clock = messages.Clock(source, state.synced, state.max_error_s)
        self.is_clock_right = state.synced or source == "none"

    def encoder(self, stream_id: str) -> Encode:
        """How results of a stream are worded; called in the writer's thread."""

        def encode(inspection: Inspection, seq: int) -> bytes:
            return messages.result(inspection, self._station(stream_id), seq, self._uptime_ms(inspection))

        return encode

    def last_result(self, stream_id: str, inspection: Inspection, seq: int) -> bytes:
        """Word the last result."""
        return messages.last_result(inspection, self._station(stream_id), seq, self._uptime_ms(inspection))

    def verdict_wording(self) -> Callable[[Inspection, int], bytes] | None:
        """How verdicts are worded, or None where none are sent: those of continuous cameras go out by option only."""
        verdict = self._configuration.mqtt.verdict
        if verdict.enabled != "always":
            return None
        return lambda inspection, seq: messages.verdict(inspection, seq, form=verdict.format)

    def _uptime_ms(self, inspection: Inspection) -> int:
        return max(0, round((inspection.closed_s - self._started_s) * 1000))

    def _station(self, stream_id: str) -> messages.Station:
        station_id = self._configuration.station.id
        return messages.Station(station_id, stream_id, self._boot_id, __version__, self.clock)
