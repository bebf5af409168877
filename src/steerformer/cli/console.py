"""How commands speak: one console, and one way to fail."""

from typing import NoReturn

import typer
from rich.console import Console

console = Console()


def fail(message: str) -> NoReturn:
    """End with exit code 2 and one line on standard error."""
    Console(stderr=True).print(f"steerformer: {message}", style="red", highlight=False, soft_wrap=True, markup=False)
    raise typer.Exit(2)
