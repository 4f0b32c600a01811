"""HTTP for every task. Where to look:

entry point      server (uvicorn's settings, signals) → app (routes) → guard (what every request must pass)
models           model_table (names, memory budget) → served (one model, its task and its worker)
scheduling       worker (queue, admission, cancelling) → generation_worker (around a session), prediction_worker
                 (batches of a task's inputs); fair_queue, turns (one forward pass at a time), limits
requests         fields (JSON bodies and their bounds), api_errors (OpenAI's shape), exchange (waits, streams,
                 disconnects), metrics
routes           openai_chat, openai_completions, openai_responses, embeddings, rerank, inference (Hugging Face's
                 shape), speech, pictures, translate (LibreTranslate's), tokens, explanations, system (health, metrics)
studio           studio (the page in static/, and what its cards need), runs (trainings and data) → runs_table (runs of
                 a directory), runs_process (their processes), runs_log (metrics.jsonl as events), runs_data (uploads)
"""
