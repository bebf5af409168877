"""Modules that ``steerformer predict`` imports."""

import os
import subprocess
import sys

import pytest

PREDICT = """
import sys
from steerformer.cli import app

def loaded():
    return [name for name in sys.modules if name.startswith(("steerformer.training", "lightning_fabric"))]

classifier, image, segmentation, scan, out = sys.argv[1:]
for words in ([classifier, image], [segmentation, scan, "--out", out]):
    app(["predict", *words], standalone_mode=False)
    print("loaded", *loaded())
import steerformer.training.run
print("control", *loaded())
"""


@pytest.mark.slow
def test_predict_does_not_import_training(runs, images, image_run, tmp_path):
    """Prediction needs neither the training code nor Fabric, whose import takes seconds."""
    file = images / "bar" / "0.png"
    words = [runs / "steerable", file, image_run, file, tmp_path]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PREDICT, *map(str, words)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith(("loaded", "control"))]
    assert lines[:2] == [["loaded"], ["loaded"]]
    assert {"steerformer.training.run", "lightning_fabric"} <= set(lines[2])  # the negative control
    assert "file,class,bar,spot" in done.stdout and "wrote 1 label map" in done.stdout
