"""The command line: commands, and one table from error class to exit code."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import NoReturn

import click

from inspectd import __version__
from inspectd.errors import ConfigurationError, InspectdError, OutsideError, StorageError, UsageError

DEFAULT_FILE = Path("/etc/inspectd/inspectd.yaml")
EXIT_DONE, EXIT_USAGE, EXIT_OUTSIDE, EXIT_INTERNAL, EXIT_CONFIGURATION = 0, 2, 69, 70, 78
EXIT_CODES: tuple[tuple[type[InspectdError], int], ...] = (
    (UsageError, EXIT_USAGE),
    (ConfigurationError, EXIT_CONFIGURATION),
    (OutsideError, EXIT_OUTSIDE),
    (StorageError, EXIT_OUTSIDE),
    (InspectdError, EXIT_INTERNAL),
)
"""The first class that fits."""

PathType = click.Path(path_type=Path)
configuration_option = click.option(
    "-c", "--config", type=PathType, default=DEFAULT_FILE, show_default=True, help="The YAML file."
)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="inspectd")
def cli() -> None:
    """Inspect every part that passes a line camera, and tell MES and PLC over MQTT what was found."""


@cli.command()
@configuration_option
@click.option("--exit-when-done", is_flag=True, help="End when every finite source is used up and all is published.")
def run(config: Path, exit_when_done: bool) -> None:
    """Run the daemon (systemd does)."""
    from inspectd.config.load import load
    from inspectd.log import configure
    from inspectd.run import run_daemon

    configure()
    loaded = load(config, env=os.environ)
    raise SystemExit(run_daemon(loaded, os.environ, exit_when_done=exit_when_done))


@cli.command()
@configuration_option
@click.option("--as", "as_path", type=PathType, help="Judge the file as if it lay there.")
def check(config: Path, as_path: Path | None) -> None:
    """Find every fault of a configuration, and print what it will take."""
    from inspectd.config.commands import check as check_file

    code, text = check_file(config, as_path, os.environ)
    click.echo(text, err=code != EXIT_DONE)
    raise SystemExit(code)


@cli.command()
@configuration_option
def show(config: Path) -> None:
    """Print the effective configuration, defaults included, secrets as ***."""
    from inspectd.config.commands import show as show_file

    click.echo(show_file(config, os.environ), nl=False)


@cli.command()
def schema() -> None:
    """Print the JSON Schema of the configuration."""
    from inspectd.config.commands import schema as json_schema

    click.echo(json.dumps(json_schema(), indent=2, ensure_ascii=False))


@cli.command()
@click.argument("images", nargs=-1, required=True, type=PathType)
@click.option("-c", "--config", type=PathType, help="Use every model of this configuration.")
@click.option("--model", "model_path", type=PathType, help="Use this model file.")
@click.option("--json", "as_json", is_flag=True, help="One document a line.")
@click.option("--precision", type=click.Choice(["auto", "f32", "f16", "bf16"]), help="Default: the configuration's.")
@click.option("--confidence", type=click.FloatRange(0, 1, min_open=True), help="Lowest score that is shown.")
@click.option("--iou", type=click.FloatRange(0, 1), help="Boxes of one class that overlap more are one object.")
@click.option("--layout", help="Output layout, where the file cannot be told.")
@click.option("--device", help="CPU, GPU, NPU; default: the configuration's first.")
@click.option("--save", type=PathType, metavar="DIR", help="Write each picture with what was found drawn into it.")
@click.option("--save-input", type=PathType, metavar="DIR", help="Write each picture as the net gets it.")
def infer(
    images: tuple[Path, ...],
    config: Path | None,
    model_path: Path | None,
    as_json: bool,
    save: Path | None,
    save_input: Path | None,
    **given: object,
) -> None:
    """Detections of pictures, without a daemon."""
    from inspectd.infer_command import infer_pictures

    chosen = {key: value for key, value in given.items() if value is not None}
    raise SystemExit(
        infer_pictures(
            images,
            config,
            model_path,
            os.environ,
            as_json=as_json,
            chosen=chosen,
            save=save,
            save_input=save_input,
        )
    )


@cli.command()
@click.argument("model")
@click.option("-c", "--config", type=PathType, help="MODEL is then the name of a model of this configuration.")
@click.option("--try", "images", multiple=True, type=PathType, metavar="IMAGE", help="Score RGB/BGR x resize on it.")
@click.option("--json", "as_json", is_flag=True, help="One document, also for a refusal.")
@click.option("--layout", help="Output layout, where the file cannot be told.")
@click.option("--device", help="CPU, GPU, NPU; default: the configuration's first.")
@click.option("--precision", type=click.Choice(["auto", "f32", "f16", "bf16"]), help="Default: the configuration's.")
def model(model: str, config: Path | None, images: tuple[Path, ...], as_json: bool, **given: object) -> None:
    """Show what the daemon makes of a model file, and who says so: the file, the configuration, or nobody."""
    from inspectd.model_command import inspect_model

    chosen = {key: value for key, value in given.items() if value is not None}
    raise SystemExit(
        inspect_model(
            model, config, os.environ, images=images, chosen=chosen, as_json=as_json, out=sys.stdout, err=sys.stderr
        )
    )


@cli.command()
@click.option("-c", "--config", type=PathType, help="Your own configuration instead of the simulated line.")
@click.option("--seconds", type=click.FloatRange(min=1), default=20.0, show_default=True, help="How long.")
@click.option("--json", "as_json", is_flag=True, help="One document at the end instead of the table.")
@click.option("--broker", metavar="HOST[:PORT]", help="Your broker instead of an embedded one.")
@click.option("--save", type=PathType, metavar="DIR", help="Write the first 50 pictures with all boxes drawn in.")
def demo(config: Path | None, seconds: float, as_json: bool, broker: str | None, save: Path | None) -> None:
    """Show the whole chain at work, without any set-up."""
    from inspectd.demo.run import run_demo

    address = _broker_address(broker) if broker else None
    raise SystemExit(
        run_demo(config=config, seconds=seconds, json_output=as_json, broker=address, out=sys.stdout, save=save)
    )


def _broker_address(text: str) -> tuple[str, int]:
    host, _, port = text.partition(":")
    if not host or (port and not port.isdigit()):
        raise UsageError(f"--broker {text}: give HOST or HOST:PORT")
    return host, int(port or 1883)


def entry() -> NoReturn:
    """Console script: every error ends as one clear text and the right exit code."""
    try:
        cli(standalone_mode=False)
    except click.exceptions.Abort:
        raise SystemExit(130) from None
    except click.ClickException as error:
        error.show()
        raise SystemExit(error.exit_code) from None
    except InspectdError as error:
        click.echo(str(error), err=True)
        raise SystemExit(next(code for kind, code in EXIT_CODES if isinstance(error, kind))) from None
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise SystemExit(130) from None
    raise SystemExit(EXIT_DONE)
