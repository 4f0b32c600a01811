"""Tensors in, tensors out. Knows no model."""
