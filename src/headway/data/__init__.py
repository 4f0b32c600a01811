"""Data sets: read files, check them, split, store examples, form batches."""
