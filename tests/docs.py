"""What the documentation says between two markers: tables that are made from the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

MQTT = Path(__file__).parents[1] / "docs" / "mqtt.md"


def between_markers(name: str) -> str:
    """Give the text between `<!-- name -->` and the next `<!-- name -->` or `<!-- /name -->` of docs/mqtt.md."""
    text = MQTT.read_text("utf-8")
    found = re.search(rf"<!-- {name} -->\n+(.*?\n)\n*<!-- /?{name} -->", text, re.DOTALL)
    if found is None:
        pytest.fail(f"{MQTT.name} has no <!-- {name} --> … <!-- /{name} -->")
    return found[1]
