"""inspectd: inspects every part that passes a line camera, and tells MES and PLC what it found."""

from datetime import date

__version__ = "0.1.0"
RELEASED = date(2026, 11, 30)
"""When this version was made: a clock that says less is wrong."""
