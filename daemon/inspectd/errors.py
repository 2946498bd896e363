"""Errors by what the caller may do. Imports nothing of ours."""

from __future__ import annotations


class InspectdError(Exception):
    """Base of all our errors; the message names the part and the numbers."""


class ConfigurationError(InspectdError):
    """The configuration is wrong: tell the engineer, exit 78. `faults` has every one of them, a line each."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


class UsageError(InspectdError):
    """The command line is wrong: exit 2."""


class OutsideError(InspectdError):
    """Something outside is unavailable (device, disk, another daemon): exit 69, or try again later."""


class SourceError(OutsideError):
    """A camera or folder cannot be opened, or was lost: reconnect with back-off."""


class ModelRefused(OutsideError):
    """A model file does not fit: what was found, what was expected, how to mend. Trying again needs another file."""


class DeviceRefused(ModelRefused):
    """This device does not take the model, or does not compute it right: another one may."""


class EngineError(InspectdError):
    """One inference failed: give up this attempt."""


class DeviceError(EngineError):
    """The device failed: the child is poisoned and must be replaced."""


class OutOfMemory(DeviceError):
    """The device has no memory for it. Before the admission fewer requests may mend that."""

    requests = 0
    """So many were tried; 0: not known."""


class OutputError(EngineError):
    """The model's answer is not finite or of the wrong shape: give up this frame (503)."""


class StaleSlot(EngineError):
    """The slot's stamp is not that of the frame: the answer must not be used."""


class WorkerError(InspectdError):
    """A child broke its protocol or died: replace it."""


class StorageError(InspectdError):
    """The journal cannot be read or written now: records wait, `ready` is false."""
