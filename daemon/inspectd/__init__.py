"""inspectd: inspects every part that passes a line camera, and tells MES and PLC what it found."""

__version__ = "0.1.0"
