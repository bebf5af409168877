"""Experiments and run folders: what a run is, independent of how it is trained or used."""

from steerformer.runs.config import ExperimentConfig, TrainingConfig, load_experiment
from steerformer.runs.run_folder import RunFolder, read_run_folder

__all__ = ["ExperimentConfig", "RunFolder", "TrainingConfig", "load_experiment", "read_run_folder"]
