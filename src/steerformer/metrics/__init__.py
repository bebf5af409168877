"""Metrics: accuracy and confusion matrices, Dice and HD95, tables per case; pure functions."""
