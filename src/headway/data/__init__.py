"""Data room: many things. Read files, check them, split, store, order and pack."""
