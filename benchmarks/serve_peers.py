"""Servers of others, each started by this file in an environment that has them (`make -C benchmarks serve-peers`):

    python serve_peers.py llama.cpp MODEL.gguf PORT THREADS
    python serve_peers.py sentence-transformers MODEL PORT THREADS
    python serve_peers.py ctranslate2 MODEL PORT THREADS

llama.cpp's own server has as many slots as the load has clients; the other two stand behind LitServe with its batching.
"""

# No `from __future__ import annotations`: LitServe reads the type of a request from `decode_request`, and a string is
# no type to it.

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import litserve

SLOTS = 16
CONTEXT = 2304  # tokens of each slot


def llama_cpp(model: str, port: int, threads: int) -> None:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = model
    params.n_ctx, params.n_batch, params.n_parallel, params.n_gpu_layers = CONTEXT * SLOTS, 512, SLOTS, 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.cache_ram_mib, params.verbosity = 0, -1
    params.hostnames, params.port = ["127.0.0.1"], port
    server = xllamacpp.Server(params)
    print(f"listening on {server.listening_address}", flush=True)
    time.sleep(10**6)


class Vectors(litserve.LitAPI):
    """At the top of the file, as the other one: LitServe's workers are processes that import it."""

    source, threads = "", 1

    def setup(self, device: str) -> None:
        import torch
        from sentence_transformers import SentenceTransformer

        torch.set_num_threads(self.threads)
        self.model = SentenceTransformer(self.source, device="cpu")

    def decode_request(self, request: dict, **_: Any) -> str:
        return request["input"]

    def predict(self, texts: list[str], **_: Any) -> Any:
        return self.model.encode(texts)

    def encode_response(self, vector: Any, **_: Any) -> dict[str, Any]:
        return {"data": [{"embedding": vector.tolist()}]}


class Translations(litserve.LitAPI):
    source, threads = "", 1

    def setup(self, device: str) -> None:
        import ctranslate2

        self.model = ctranslate2.Translator(
            self.source, compute_type="float32", intra_threads=self.threads, inter_threads=1
        )

    def decode_request(self, request: dict, **_: Any) -> list[str]:
        return request["tokens"]

    def predict(self, sources: list[list[str]], **_: Any) -> Any:
        found = self.model.translate_batch(sources, beam_size=1, max_decoding_length=40, min_decoding_length=40)
        return [each.hypotheses[0] for each in found]

    def encode_response(self, tokens: list[str], **_: Any) -> dict[str, Any]:
        return {"tokens": tokens, "usage": {"completion_tokens": len(tokens)}}


def behind_litserve(kind: type[litserve.LitAPI], model: str, port: int, threads: int) -> None:
    api = kind(max_batch_size=16, batch_timeout=0.005)
    api.source, api.threads = model, threads
    litserve.LitServer(api, accelerator="cpu").run(host="127.0.0.1", port=port, generate_client_file=False)


PEERS: dict[str, Callable[[str, int, int], None]] = {
    "llama.cpp": llama_cpp,
    "sentence-transformers": partial(behind_litserve, Vectors),
    "ctranslate2": partial(behind_litserve, Translations),
}

if __name__ == "__main__":
    name, path, at, count = sys.argv[1:]
    PEERS[name](path, int(at), int(count))
