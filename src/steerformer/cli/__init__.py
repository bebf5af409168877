"""The command ``steerformer``; one file a command."""

from typing import Annotated

import typer

from steerformer.cli.check import check
from steerformer.cli.console import console
from steerformer.cli.data import data
from steerformer.cli.demo import demo
from steerformer.cli.evaluate import evaluate
from steerformer.cli.export import export
from steerformer.cli.predict import predict
from steerformer.cli.reproduce import reproduce
from steerformer.cli.train import train

app = typer.Typer(
    help="Networks on images and volumes that are equivariant to rotation and translation by construction.",
    no_args_is_help=True,
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (demo, data, train, evaluate, check, predict, export, reproduce):
    app.command()(command)


@app.callback()
def main(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.", is_eager=True)] = False,
) -> None:
    """Commands for everything that can be done without writing Python."""
    if version:
        from steerformer.version import __version__

        console.print(f"steerformer {__version__}")
        raise typer.Exit
