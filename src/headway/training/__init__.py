"""The training loop: optimiser, schedule, resume, distributed, log."""
