"""Bricks assembled into shapes, one file a shape. Knows no published name."""
