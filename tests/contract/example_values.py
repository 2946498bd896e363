"""Ids, times and hashes of the example messages: fixed, so that the examples change only when their wording does."""

from __future__ import annotations

from inspectd.publish import messages, reports
from inspectd.publish.uuid7 import uuid7
from inspectd.records import CameraFacts

WALL_S = 1_796_000_000.123
CLOSED_WALL_S = WALL_S + 0.031
BOOT_ID = "6f0c3d64-2f6e-4b0c-9d0a-0f3f5a1c2b7d"
STREAM_ID = "0196f1a27c4e4b118a531d2c3b4a5968"
CODE_HASH = "41b7" * 16
CONFIGURATION_HASH = "c0de" * 16
MODEL_HASH = "9f2c" * 16
RECIPE_HASH = "a12a" * 16
UPTIME_MS = 86_400_000
SEQ = 4711
RECIPE_NUMBER = 0
CAMERA_TROUBLE = "camera top gives no frames any more"

STATION = messages.Station(
    "aoi-01", STREAM_ID, BOOT_ID, "0.1.0", messages.Clock("ntp", synced=True, max_error_s=0.0021)
)
RECIPE = reports.RecipeFacts("default", RECIPE_NUMBER, RECIPE_HASH)
CAMERA = CameraFacts("top", "genicam", False, False, 1920, 1080, "acme", "x1", "23998877", "1.2")
RESULT_ID = uuid7(CLOSED_WALL_S, bytes(range(10)))
