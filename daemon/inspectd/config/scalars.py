"""What one unquoted YAML word stands for, and the words that YAML readers disagree about."""

from __future__ import annotations

import re

Scalar = str | int | float | bool | None

_NULL = re.compile(r"~|null|Null|NULL|")
_BOOL = re.compile(r"(true|True|TRUE|yes|Yes|YES|on|On|ON)|false|False|FALSE|no|No|NO|off|Off|OFF")
_INT = re.compile(r"[-+]?(0|[1-9][0-9_]*)")
_OCTAL_LIKE = re.compile(r"[-+]?0(o[0-7]+|[0-9_]+)")
_BASED = re.compile(r"[-+]?0(x[0-9a-fA-F]+|b[01]+)")
_FLOAT = re.compile(r"[-+]?([0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*|[0-9][0-9_]*(?=[eE]))([eE][-+]?[0-9]+)?")
_SPECIAL = re.compile(r"([-+]?)\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_CLOCK_LIKE = re.compile(r"[-+]?[0-9]+(:[0-5]?[0-9])+(\.[0-9]*)?")
_DIGITS = 300
"""Longer numbers are nonsense, and Python refuses to read some of them."""


def trap(text: str) -> str | None:
    """Say why an unquoted word is refused wherever it stands; None: it is not one of those."""
    if len(text) > _DIGITS:
        return None
    if _OCTAL_LIKE.fullmatch(text):
        plain = text.lstrip("+-0o_") or "0"
        return (
            f"`{text}` begins with 0, which some YAML readers take for an octal number; "
            f'write {plain} for the number, or "{text}" in quotes for text'
        )
    if _CLOCK_LIKE.fullmatch(text):
        return (
            f'`{text}` without quotes is a number of minutes or seconds to some YAML readers; write "{text}" in quotes'
        )
    return None


def resolved(text: str) -> Scalar:
    """Give the value of an unquoted word: YAML 1.1's words for true and false, 1.2's numbers, everything else text."""
    if len(text) > _DIGITS:
        return text
    if _NULL.fullmatch(text):
        return None
    if match := _BOOL.fullmatch(text):
        return match[1] is not None
    digits = text.replace("_", "")
    if _OCTAL_LIKE.fullmatch(text):
        return int(digits.replace("o", ""))
    if _INT.fullmatch(text):
        return int(digits)
    if _BASED.fullmatch(text):
        return int(digits, 0)
    if _FLOAT.fullmatch(text):
        return float(digits)
    if _SPECIAL.fullmatch(text):
        return float(text.replace(".", ""))
    return text
