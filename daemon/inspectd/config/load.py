"""Reads a configuration file: all its faults at once, or the configuration with absolute paths."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inspectd.config.checks import cross_checks
from inspectd.config.checks_rules import Known
from inspectd.config.faults import Fault, KeyPath, rendered
from inspectd.config.modelfile import classes_of as classes_of_file
from inspectd.config.onsite import ClassesOf, VideoFault, known_classes, onsite_checks
from inspectd.config.partial import validated
from inspectd.config.paths import storage_path, with_absolute_paths
from inspectd.config.readfile import read_text
from inspectd.config.schema import Configuration
from inspectd.config.yamltree import Tree, parse
from inspectd.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration without faults."""

    configuration: Configuration
    """Every path in it is absolute."""
    path: Path
    """The file that was read."""
    base: Path
    """The folder that relative paths in the file are relative to."""
    storage_path: Path
    """`storage.path`, or its default."""
    warnings: tuple[str, ...]
    """As faults: `FILE:LINE: key: what`."""
    sha256: str
    """Of the normalised configuration as written: the same file elsewhere has the same."""


def load(
    path: Path,
    *,
    as_path: Path | None = None,
    env: Mapping[str, str],
    classes_of: ClassesOf = classes_of_file,
    video_fault: VideoFault | None = None,
) -> Loaded:
    """Read and check a file. Raises ConfigurationError with every fault.

    `as_path`: judge it as if it lay there (Ansible validates a temporary copy). `env`: for the default of
    `storage.path`. `classes_of` gives the class names that a model file tells, `video_fault` opens videos.
    """
    base = Path(os.path.abspath(as_path or path)).parent  # noqa: PTH100  not resolve(): a link to the file is meant where it lies
    text = read_text(path)
    if not isinstance(text, str):
        raise ConfigurationError(rendered(str(path), [(fault.line or 1, fault) for fault in text]))
    tree = parse(text)
    configuration, faults = _judged(tree, base, env, classes_of, video_fault)
    wrong = [fault for fault in faults if not fault.is_warning]
    if wrong or configuration is None:
        raise ConfigurationError(_texts(path, tree, wrong))
    return Loaded(
        configuration=with_absolute_paths(configuration, base, env),
        path=path,
        base=base,
        storage_path=storage_path(configuration, base, env) or base,
        warnings=tuple(_texts(path, tree, faults)),
        sha256=digest(configuration),
    )


def digest(configuration: Configuration, *sections: str) -> str:
    """SHA-256 of the normalised configuration, or of some sections of it."""
    values = configuration.model_dump(mode="json", by_alias=True, include=set(sections) or None)
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _judged(
    tree: Tree, base: Path, env: Mapping[str, str], classes_of: ClassesOf, video_fault: VideoFault | None
) -> tuple[Configuration | None, list[Fault]]:
    """Give the configuration as written, and all faults and warnings of it."""
    if not isinstance(tree.value, dict):
        return None, list(tree.faults) or [_not_a_map(tree.value)]
    outcome = validated(tree)
    faults = _without_followers(tree.faults, outcome.faults)
    configuration = outcome.configuration
    if configuration is not None:
        known = Known(
            cameras=_names(tree, "cameras"),
            models=_names(tree, "models"),
            classes=known_classes(with_absolute_paths(configuration, base, env), classes_of),
        )
        found = [*cross_checks(configuration, known), *_on_this_pc(configuration, base, env, classes_of, video_fault)]
        in_file = [
            Fault(outcome.key_in_file(fault.key), fault.what, None, fault.depends, fault.is_warning) for fault in found
        ]
        faults = _without_followers(faults, in_file, outcome.mended)
    return configuration, faults


def _on_this_pc(
    configuration: Configuration,
    base: Path,
    env: Mapping[str, str],
    classes_of: ClassesOf,
    video_fault: VideoFault | None,
) -> Iterable[Fault]:
    yield from onsite_checks(with_absolute_paths(configuration, base, env), classes_of, video_fault)
    if storage_path(configuration, base, env) is None:
        what = "is missing, and neither STATE_DIRECTORY, XDG_STATE_HOME nor HOME says where state is kept; give it"
        yield Fault(("storage", "path"), what)


def _names(tree: Tree, section: str) -> list[str]:
    names = tree.value.get(section)
    return list(names) if isinstance(names, dict) else []


def _without_followers(certain: Iterable[Fault], more: Iterable[Fault], mended: Iterable[KeyPath] = ()) -> list[Fault]:
    """Add faults that do not merely follow from those that are certain already, or from what was mended for them."""
    told = [fault for fault in certain if not fault.is_warning]
    wrong = {*(fault.key for fault in told), *mended} - {()}
    return [*told, *(fault for fault in more if not any(_touches(key, wrong) for key in (fault.key, *fault.depends)))]


def _touches(key: KeyPath, wrong: set[KeyPath]) -> bool:
    return any(key[: len(other)] == other or other[: len(key)] == key for other in wrong)


def _not_a_map(value: Any) -> Fault:
    if value is None:
        what = "has no keys, only comments; begin with `version: 1` (config/inspectd.yaml is a commented example)"
    elif isinstance(value, list):
        what = "begins with a list (`- …`); keys are wanted: `version: 1`, `station:`, `cameras:` and so on"
    else:
        what = "is one word or text; keys are wanted: `version: 1`, `station:`, `cameras:` and so on"
    return Fault((), what)


def _texts(path: Path, tree: Tree, faults: Iterable[Fault]) -> list[str]:
    return rendered(str(path), [(fault.line or tree.line_of(fault.key), fault) for fault in faults])
