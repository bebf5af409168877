"""Steerable layers: small modules with an ``in_type`` and an ``out_type``, for images and volumes alike."""
