"""Writes the effective configuration as YAML that loads again. Holds no secret: those stay in their files."""

from __future__ import annotations

from typing import Any

import yaml

from inspectd.config.scalars import resolved, trap
from inspectd.config.schema import Configuration


class _Dumper(yaml.SafeDumper):
    """Quotes every text that our own reader, or another one, would not take for text."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write equal values out, each time: our reader takes no aliases."""
        del data
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    is_plain = isinstance(resolved(value), str) and trap(value) is None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=None if is_plain else '"')


_Dumper.add_representer(str, _text)


def as_yaml(configuration: Configuration) -> str:
    """Give every key with its value, defaults too; keys without a value are left out."""
    values = configuration.model_dump(mode="json", by_alias=True)
    return yaml.dump(_without_none(values), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        # a rule's max_count: null says "no limit" and is not the default
        return {name: _without_none(item) for name, item in value.items() if item is not None or name == "max_count"}
    if isinstance(value, list):
        return [_without_none(item) for item in value]
    return value
