"""What runs beside us: its licences, and that the page which tells them is true."""

from __future__ import annotations

import pytest
from tools.dependencies import PROJECT, Dependency, dependencies

RUNTIME = dependencies(("demo",))


@pytest.mark.parametrize("dependency", RUNTIME, ids=lambda dependency: dependency.name)
def test_no_package_that_runs_on_the_line_is_under_gpl_agpl_or_an_unknown_licence(dependency: Dependency) -> None:
    assert dependency.is_allowed, f"{dependency.name}: {dependency.licence}"


@pytest.mark.parametrize("dependency", RUNTIME, ids=lambda dependency: dependency.name)
def test_the_page_of_dependencies_names_every_package_with_its_licence(dependency: Dependency) -> None:
    """`.venv/bin/python tools/dependencies.py > docs/dependencies.md` makes it again."""
    page = (PROJECT.parent / "docs" / "dependencies.md").read_text("utf-8")
    assert f"| {dependency.name} | {dependency.licence} |" in page


@pytest.mark.parametrize(
    ("licence", "is_allowed"),
    [
        ("MIT", True),
        ("Apache Software", True),
        ("Mozilla Public License 2.0", True),
        ("BSD-3-Clause AND 0BSD AND MIT AND Zlib AND CC0-1.0", True),
        ("EPL-2.0 OR BSD-3-Clause", True),
        ("GPL-3.0-or-later", False),
        ("GNU Affero General Public License v3", False),
        ("LGPL-2.1-only AND MIT", False),
        ("Proprietary", False),
        ("unknown", False),
        ("", False),
    ],
)
def test_a_licence_is_allowed_only_if_each_word_of_it_is(licence: str, is_allowed: bool) -> None:
    assert Dependency("x", licence, "").is_allowed is is_allowed


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-dev.lock"])
def test_a_lock_has_hashes_and_no_address(name: str) -> None:
    """Where packages come from is each machine's own setting."""
    lines = [line for line in (PROJECT.parent / name).read_text("utf-8").splitlines() if not line.startswith("#")]
    packages = [line for line in lines if not line.startswith(" ")]
    assert packages
    assert all("==" in line and line.endswith("\\") for line in packages)
    assert all(line.strip().startswith("--hash=sha256:") for line in lines if line not in packages)
