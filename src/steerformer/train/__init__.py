"""Training, checkpoints and runs."""
