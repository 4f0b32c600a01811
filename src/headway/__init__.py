"""Headway: train, run, look inside and serve transformers of every shape, on your own data."""

__version__ = "0.1.0"
