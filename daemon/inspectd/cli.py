"""The command line: commands, and one table from error class to exit code."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import click

from inspectd import __version__
from inspectd.errors import ConfigurationError, InspectdError, OutsideError, StorageError, UsageError

if TYPE_CHECKING:
    from inspectd.door.client import Door

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


def socket_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add how to find the daemon."""
    named = click.option("--socket", type=PathType, metavar="PATH", help="The daemon's socket.")
    found = click.option(
        "-c", "--config", type=PathType, help="The daemon's configuration: it tells where its socket is."
    )
    return named(found(command))


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


@cli.command()
@click.option("--watch", is_flag=True, help="Show it again every second, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="The whole document; with --watch one a line.")
@click.option("--wait", type=click.Choice(["healthy", "idle"]), help="Wait for it instead of showing what is.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0), default=60.0, show_default=True, metavar="S")
@socket_options
def status(
    watch: bool,
    as_json: bool,
    wait: Literal["healthy", "idle"] | None,
    timeout_s: float,
    config: Path | None,
    socket: Path | None,
) -> None:
    """Show how the running daemon is.

    Healthy: ready, and nothing is amiss. Idle: nothing is in flight, and everything stored is delivered.

    Exit code: 0; 1 if it is not ready (without --wait, --watch); 69 if nobody answers, or --wait was in vain.
    """
    from inspectd.status_command import Options, show_status

    options = Options(watch=watch, as_json=as_json, wait=wait, timeout_s=timeout_s)
    raise SystemExit(show_status(_door(config, socket).status, options, sys.stdout))


@cli.command()
@configuration_option
@click.option("--journal", type=PathType, metavar="DIR", help="The journal's folder, instead of the configuration's.")
@click.option("--camera", help="Of this camera only.")
@click.option("--evaluation", metavar="ok|notOk|notDecidable|undefined", help="With this evaluation only.")
@click.option("--code", type=int, help="With this resultEvaluationCode only.")
@click.option("--from", "begin", metavar="TIME", help="ISO-8601 (local), an age (30min, 2h, 7d), today, yesterday.")
@click.option("--to", "end", metavar="TIME", help="Likewise; itself outside.")
@click.option("--last", type=click.IntRange(min=0), default=20, show_default=True, help="So many rows; 0: all.")
@click.option("--by", type=click.Choice(["hour", "shift", "day"]), help="Count frames instead of listing them.")
@click.option("--format", "form", type=click.Choice(["table", "jsonl", "csv"]), default="table", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="As --format jsonl.")
@click.option("--output", type=PathType, metavar="FILE", help="Write it there.")
def results(
    config: Path,
    journal: Path | None,
    form: Literal["table", "jsonl", "csv"],
    as_json: bool,
    output: Path | None,
    **asked: Any,
) -> None:
    """List or count what was found, also while the daemon runs."""
    from inspectd.results_command import Question, list_results

    code = list_results(
        Question(**asked),
        config,
        os.environ,
        journal=journal,
        form="jsonl" if as_json else form,
        output=output,
        out=sys.stdout,
        err=sys.stderr,
    )
    raise SystemExit(code)


@cli.command()
@click.argument("command")
@click.argument("arguments", required=False, metavar="[JSON]")
@click.option("--timeout", "limit_s", type=click.FloatRange(0, 600, min_open=True), default=30.0, show_default=True)
@socket_options
def call(command: str, arguments: str | None, limit_s: float, config: Path | None, socket: Path | None) -> None:
    """Have the running daemon do COMMAND, and print its answer: inspectd call get-result '{"jobId": "…"}'.

    Exit code: 0 done; 1 refused or failed; 2 no proper JSON; 69 nobody answers, or not at its end in time.
    """
    from inspectd.call_command import call_daemon

    raise SystemExit(call_daemon(_door(config, socket).call, command, arguments, limit_s, sys.stdout))


def _door(config: Path | None, socket: Path | None) -> Door:
    from inspectd.door.client import Door
    from inspectd.door.place import find_socket

    return Door(find_socket(socket, config, DEFAULT_FILE, os.environ))


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
