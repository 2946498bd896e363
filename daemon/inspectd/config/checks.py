"""Cross-checks: what each key may say by itself, but not together. Pure; `onsite` looks at files."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from inspectd.config.checks_rules import Known, canonical, rule_checks
from inspectd.config.faults import Fault, KeyPath, listed, shown
from inspectd.config.plan import ASSUMED_REQUESTS, slots_needed
from inspectd.config.schema import Configuration, Tls
from inspectd.config.suggest import or_choice


def cross_checks(configuration: Configuration, known: Known) -> Iterator[Fault]:
    """Give every fault and warning of this kind."""
    yield from _broker(configuration)
    yield from _shifts(configuration)
    for camera_id in configuration.cameras:
        yield from _camera(configuration, camera_id, known)
    for model_id in configuration.models:
        yield from _model(configuration, model_id, known)
    yield from rule_checks(configuration, known)


def _broker(configuration: Configuration) -> Iterator[Fault]:
    mqtt = configuration.mqtt
    if mqtt.tls is None and not mqtt.insecure and not _is_loopback(mqtt.host):
        yield Fault(
            ("mqtt", "host"),
            f"{shown(mqtt.host)} is not on this PC, and without `tls` passwords and verdicts would cross the network "
            "in the clear; add `tls: {ca_file: …}` here, or say `insecure: true` if that is meant",
            depends=(("mqtt", "insecure"), ("mqtt", "tls")),
        )
    if mqtt.tls is not None:
        yield from _key_pair(mqtt.tls)
    yield from _reply_prefixes(configuration)
    if mqtt.username is not None and mqtt.password_file is None:
        yield Fault(
            ("mqtt", "username"),
            "is given without `password_file`; name the file that holds the password, or remove `username`",
            depends=(("mqtt", "password_file"),),
        )
    if mqtt.password_file is not None and mqtt.username is None:
        yield Fault(
            ("mqtt", "password_file"),
            "is given without `username`; add it, or remove `password_file`",
            depends=(("mqtt", "username"),),
        )


def _reply_prefixes(configuration: Configuration) -> Iterator[Fault]:
    """An answer on one of our own topics would be a request to us, or look like a result of ours."""
    base = f"{configuration.base_topic}/"
    for place, prefix in enumerate(configuration.mqtt.reply_prefixes):
        below = f"{prefix.rstrip('/')}/"
        if base.startswith(below) or below.startswith(base):
            yield Fault(
                ("mqtt", "reply_prefixes", place),
                f"{shown(prefix)} takes in this station's own topics ({base}…); answers below {base}rsp/ are allowed "
                "without it, name only topics of others",
                depends=(("mqtt", "base"),),
            )


def _key_pair(tls: Tls) -> Iterator[Fault]:
    for name, value, other_name, other in (
        ("cert_file", tls.cert_file, "key_file", tls.key_file),
        ("key_file", tls.key_file, "cert_file", tls.cert_file),
    ):
        if value is not None and other is None:
            yield Fault(
                ("mqtt", "tls", name),
                f"is given without `{other_name}`; a client certificate is two files, or one that is named twice",
                depends=(("mqtt", "tls", other_name),),
            )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.rstrip(".").casefold() == "localhost"


def _shifts(configuration: Configuration) -> Iterator[Fault]:
    shifts = configuration.station.shifts
    for place, begin in enumerate(shifts):
        if begin in shifts[:place]:
            yield Fault(("station", "shifts", place), f"{shown(begin)} is given twice; remove one")


def _camera(configuration: Configuration, camera_id: str, known: Known) -> Iterator[Fault]:
    camera, key = configuration.cameras[camera_id], ("cameras", camera_id)
    for place, name in enumerate(camera.models):
        if name not in known.models:
            yield Fault(
                (*key, "models", place),
                f"there is no model {shown(name)}{or_choice(name, known.models)}",
            )
        elif name in configuration.models:
            yield from _deadline(configuration, camera_id, name)
    if camera.max_fps is not None and camera.fps is not None and camera.max_fps < camera.fps:
        yield Fault(
            (*key, "max_fps"),
            f"{camera.max_fps:g} is below the expected `fps` {camera.fps:g}; raise it, or expect no more",
            depends=((*key, "fps"),),
        )
    own = {name: configuration.models[name] for name in camera.models if name in configuration.models}
    if len(own) < len(camera.models):
        return  # what is said below is not certain then
    if not any(model.required for model in own.values()):
        yield Fault(
            (*key, "models"),
            f"none of {listed(own)} is required, so that nothing could ever be OK; leave out `required: false` for one",
            depends=tuple(("models", name, "required") for name in own),
        )
    needed = slots_needed(camera, list(own.values()), [ASSUMED_REQUESTS] * len(own))
    if camera.slots != "auto" and camera.slots < needed:
        yield Fault(
            (*key, "slots"),
            f"{camera.slots} is below the {needed} that queue, requests and deadline can fill: frames beyond are not "
            "inspected (code 304); raise it or leave it out",
            depends=((*key, "deadline_ms"), (*key, "fps"), *(("models", name) for name in own)),
            is_warning=True,
        )


def _deadline(configuration: Configuration, camera_id: str, name: str) -> Iterator[Fault]:
    camera, model = configuration.cameras[camera_id], configuration.models[name]
    if camera.deadline_ms < model.timeout_ms:
        key: KeyPath = ("cameras", camera_id, "deadline_ms")
        yield Fault(
            key,
            f"{camera.deadline_ms} ms is shorter than the time limit of model {name} (timeout_ms {model.timeout_ms}), "
            "which could then never pass; raise the one or lower the other",
            depends=(("models", name, "timeout_ms"),),
        )


def _model(configuration: Configuration, model_id: str, known: Known) -> Iterator[Fault]:
    model, key = configuration.models[model_id], ("models", model_id)
    if not any(model_id in camera.models for camera in configuration.cameras.values()):
        yield Fault(
            key,
            "no camera uses this model; name it under a camera's `models`, or remove it",
            depends=(("cameras",),),
            is_warning=True,
        )
    if "retry_primary_s" in model.model_fields_set and len(model.devices) == 1:
        yield Fault(
            (*key, "retry_primary_s"),
            f"has no effect with one device ({model.devices[0]}); add another to `devices`, or remove it",
            depends=((*key, "devices"),),
            is_warning=True,
        )
    seen: set[str] = set()
    for place, name in enumerate(model.classes or ()):
        if canonical(name) in seen:
            yield Fault(
                (*key, "classes", place), f"{shown(name)} is given twice (space and _ are the same); name each once"
            )
        seen.add(canonical(name))
    classes = known.classes.get(model_id)
    for name in model.labels if classes else ():
        if canonical(name) not in map(canonical, classes or ()):
            yield Fault(
                (*key, "labels", name),
                f"model {model_id} has no class {shown(name)}{or_choice(name, classes or ())}",
                depends=((*key, "classes"),),
                is_warning=True,
            )
