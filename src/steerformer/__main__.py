"""``python -m steerformer`` is the command ``steerformer``."""

from steerformer.cli import app

app()
