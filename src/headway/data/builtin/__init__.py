"""A small data set for each task, generated or found in Python itself, so that every command works offline.

A task names its own as `Task.builtin`.
"""
