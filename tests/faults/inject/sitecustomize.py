"""Python imports this at its start when the folder is on PYTHONPATH. Does something in model children alone.

Nothing heavy is imported here: the faults come in when the child itself imports the runtime.
"""

from __future__ import annotations

import resource
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

_CHILD = ["-m", "inspectd.worker.child", "model"]


class _AfterOpenVino(MetaPathFinder, Loader):
    """Finds the runtime where it is, and installs the faults when it has been imported."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._true: Loader | None = None

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        if name != "openvino":
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            self._true, spec.loader = spec.loader, self
        return spec

    def create_module(self, _spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        assert self._true is not None
        self._true.exec_module(module)
        from tests.faults.inject.runtime import install

        install(self._model)


def _model() -> str | None:
    """Give the model whose child this is."""
    words = sys.orig_argv
    places = [place for place in range(len(words) - 3) if words[place : place + 3] == _CHILD]
    return words[places[0] + 3] if places else None


if (_name := _model()) is not None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # crashes are meant
    sys.meta_path.insert(0, _AfterOpenVino(_name))
