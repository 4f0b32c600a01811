"""What goes into a model and what comes out, kind by kind: every command and page works by kinds and asks for no task.

An input kind (`inputs.py`) knows its columns, how it is read from the command line and from a row, and how it is named.
A prediction kind (`predictions.py`) knows its line in a terminal, its columns in a table, and the simplest baseline;
the direction of every score stands there. What draws a kind registers a function for it in its own package.
"""
