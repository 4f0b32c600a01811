"""Room: explain. How an answer came about, step by step, with the model's own numbers: one story, many views."""
