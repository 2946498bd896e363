"""What is installed on a PC of the line: the wheel has everything that runs, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Files of the wheel that is built from this tree."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert built.returncode == 0, built.stderr
    [wheel] = folder.glob("*.whl")
    return set(ZipFile(wheel).namelist())


@pytest.mark.parametrize(("folder", "endings"), [("models", (".xml", ".bin")), ("schemas", (".json",))])
def test_models_and_schemas_come_with_the_wheel(names: set[str], folder: str, endings: tuple[str, ...]) -> None:
    files = [file.name for file in (ROOT / "config" / folder).iterdir() if file.name.endswith(endings)]
    assert files
    assert not [file for file in files if f"inspectd/data/{folder}/{file}" not in names]


def test_every_module_comes_with_the_wheel(names: set[str]) -> None:
    package = ROOT / "daemon"
    assert not {str(file.relative_to(package)) for file in package.rglob("*.py")} - names


def test_nothing_but_the_package_comes_with_the_wheel(names: set[str]) -> None:
    """Neither tests nor caches, and no other top-level name that could hide somebody else's."""
    assert {name.split("/")[0].split("-")[0] for name in names} == {"inspectd"}
    assert not [name for name in names if name.endswith(".pyc")]
