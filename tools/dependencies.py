"""Prints docs/dependencies.md: what runs beside inspectd on a PC of the line, and under which licence.

`.venv/bin/python tools/dependencies.py > docs/dependencies.md`. Reads pyproject.toml and what is installed.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"

_ALLOWED = re.compile(r"(MIT|BSD|Apache|MPL|Mozilla|EPL|ISC|PSF|Zlib|CC0)(-[\w.]+)*|AND|OR", re.IGNORECASE)
_WORD = re.compile(r"[A-Za-z][\w.+-]*")
_SHORT = {"Python Software Foundation": "PSF-2.0"}
"""Classifiers that are only words, by their expression."""
_FILLERS = {"license", "software", "public", "osi", "approved"}
_CLASSIFIER = "License :: OSI Approved :: "

HEAD = """# What inspectd depends on

Made by `tools/dependencies.py` from the metadata of the installed packages; versions stand in `requirements.lock`. A
test fails for a package that is missing here, and for any under GPL, AGPL or LGPL.

Some wheels carry shared libraries of others: `opencv-python-headless` FFmpeg (LGPL-2.1), and both it and `numpy` the
Fortran runtime of GCC (GPL-3.0 with the exception that allows it; LGPL-2.1). Each package lists them in its own licence
files.
"""


@dataclass(frozen=True, slots=True)
class Dependency:
    """One installed package."""

    name: str
    licence: str
    summary: str

    @property
    def is_allowed(self) -> bool:
        """Whether every word of its licence is one of those that may run beside us. An unknown one is not."""
        words = [word for word in _WORD.findall(self.licence) if word.lower() not in _FILLERS]
        return bool(words) and all(_ALLOWED.fullmatch(word) for word in words)


def dependencies(extras: Iterable[str] = ()) -> list[Dependency]:
    """Give what the project needs, directly or not, on this Python and platform; sorted by name."""
    project = tomllib.loads(PROJECT.read_text("utf-8"))["project"]
    wanted: list[str] = [*project["dependencies"]]
    for extra in extras:
        wanted += project["optional-dependencies"][extra]
    found: dict[str, Distribution] = {}
    asked: set[tuple[str, frozenset[str]]] = set()
    queue = [Requirement(text) for text in wanted]
    while queue:
        requirement = queue.pop()
        key = (canonicalize_name(requirement.name), frozenset(requirement.extras))
        if key in asked:
            continue
        asked.add(key)
        package = distribution(requirement.name)
        found[key[0]] = package
        queue += _needs(package, requirement.extras)
    return [Dependency(name, _licence(found[name]), _summary(found[name])) for name in sorted(found)]


def _needs(package: Distribution, extras: Iterable[str]) -> Iterator[Requirement]:
    for text in package.requires or ():
        requirement = Requirement(text)
        environments = [{"extra": extra} for extra in ("", *extras)]
        if requirement.marker is None or any(map(requirement.marker.evaluate, environments)):
            yield requirement


def _licence(package: Distribution) -> str:
    """The expression of newer metadata, else the classifiers, else the free text's first line."""
    if expression := _field(package, "License-Expression"):
        return expression
    classifiers = [text for text in package.metadata.get_all("Classifier") or () if text.startswith(_CLASSIFIER)]
    if classifiers:
        names = (re.sub(r" \(.*\)$", "", text.removeprefix(_CLASSIFIER)) for text in classifiers)
        plain = (name.removesuffix(" License") for name in names)
        return " AND ".join(_SHORT.get(name, name) for name in plain)
    return _field(package, "License") or "unknown"


def _field(package: Distribution, name: str) -> str:
    """Give the first line of a field; empty where it is missing."""
    values = package.metadata.get_all(name) or [""]
    return next(iter(str(values[0]).strip().splitlines()), "")


def _summary(package: Distribution) -> str:
    return _field(package, "Summary").rstrip(".").replace("|", "/")


def table(rows: Iterable[Dependency]) -> str:
    """Give a Markdown table."""
    lines = [f"| {row.name} | {row.licence} | {row.summary} |" for row in rows]
    return "\n".join(["| package | licence | what it is |", "|---|---|---|", *lines])


def document() -> str:
    """Give the whole page."""
    runtime = dependencies()
    names = {row.name for row in runtime}
    demo = [row for row in dependencies(("demo",)) if row.name not in names]
    return f"{HEAD}\n## The daemon\n\n{table(runtime)}\n\n## `inspectd demo`'s own broker\n\n{table(demo)}\n"


if __name__ == "__main__":
    print(document(), end="")
