"""Data sets of images and volumes."""
