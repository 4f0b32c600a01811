"""/v1/embeddings (OpenAI's), /embed (text-embeddings-inference's), /v1/rerank and /v2/rerank (Cohere's)."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Request
from pydantic import Field

from headway.kinds.predictions import VectorPrediction
from headway.serving.answers import new_id
from headway.serving.api_errors import ApiError
from headway.serving.exchange import LargeAnswer, in_thread
from headway.serving.fields import Body, BoundedRoute, Ids, Ignored, Name, Text, Texts, Unsupported
from headway.serving.inference import predict
from headway.serving.served import TRUNCATE, Served

router = APIRouter(route_class=BoundedRoute)


class EmbeddingsBody(Body):
    model: Name
    input: Text | Texts | Ids | Annotated[list[Ids], Field(min_length=1, max_length=1024)]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    user: Ignored = None


@router.post("/v1/embeddings")
async def embeddings(request: Request, body: EmbeddingsBody) -> Any:
    texts = _texts(body.input)
    async with request.app.state.models.use(body.model) as served:
        served.require_task("embed")
        count = await in_thread(_count, served, texts)
        vectors = await predict(request, served, texts, {})
    if body.dimensions not in (None, len(vectors[0])):
        raise ApiError(400, f"dimensions: the model's vectors have {len(vectors[0])}", param="dimensions")
    packed = _base64 if body.encoding_format == "base64" else list
    data = [{"object": "embedding", "index": i, "embedding": packed(each)} for i, each in enumerate(vectors)]
    usage = {"prompt_tokens": count, "total_tokens": count}
    return await in_thread(LargeAnswer, {"object": "list", "data": data, "model": body.model, "usage": usage})


def _texts(given: Any) -> list[str]:
    listed = [given] if isinstance(given, str) else given
    if not all(isinstance(text, str) for text in listed):
        raise ApiError(
            400, "input: token ids depend on the tokenizer they are from; send texts (in LangChain, set "
            "check_embedding_ctx_length=False)", param="input",
        )  # fmt: skip
    return list(listed)


def _count(served: Served, texts: Sequence[str]) -> int:
    count = sum(map(len, served.tokenizer.encode_batch(list(texts))))
    served.metrics.prompt.inc(count)
    return count


def _base64(vector: Sequence[float]) -> str:
    return base64.b64encode(np.asarray(vector, dtype="<f4").tobytes()).decode()


class EmbedBody(Body):
    inputs: Text | Texts
    model: Name | None = None
    normalize: bool = True
    truncate: bool | None = None
    truncation_direction: Literal["Right", "right"] | None = None
    prompt_name: Unsupported = None
    dimensions: Unsupported = None


@router.post("/embed")
async def embed(request: Request, body: EmbedBody) -> Any:
    models = request.app.state.models
    async with models.use(body.model or models.only("embed")) as served:
        served.require_task("embed")
        options: dict[str, Any] = {"normalize": body.normalize} | ({TRUNCATE: True} if body.truncate else {})
        vectors = await predict(request, served, _texts(body.inputs), options)
    return await in_thread(LargeAnswer, vectors)


# ---------------------------------------------------------------------------------------- rerank


class Document(Body):
    text: Text
    id: Ignored = None
    title: Ignored = None


class RerankBody(Body):
    model: Name | None = None
    query: Text
    documents: Annotated[list[Text | Document], Field(min_length=1, max_length=1000)]
    top_n: Annotated[int, Field(ge=1, le=1000)] | None = None
    return_documents: bool | None = None
    max_tokens_per_doc: Unsupported = None
    max_chunks_per_doc: Unsupported = None
    rank_fields: Unsupported = None
    priority: Ignored = None


@router.post("/v2/rerank")
@router.post("/v1/rerank")
@router.post("/rerank")
async def rerank(request: Request, body: RerankBody) -> Any:
    """The documents by relevance: the probability of a model of pairs (cross-encoder), else the cosine of a sentence
    encoder's vectors, moved from [-1, 1] to [0, 1]."""
    models = request.app.state.models
    documents = [each if isinstance(each, str) else each.text for each in body.documents]
    async with models.use(body.model or models.only("embed", "classify")) as served:
        scores = await relevance(request, served, body.query, documents)
    order = sorted(range(len(scores)), key=lambda index: -scores[index])[: body.top_n]
    found = [
        {
            "index": i,
            "relevance_score": scores[i],
            **({"document": {"text": documents[i]}} if body.return_documents else {}),
        }
        for i in order
    ]
    version = {"version": "2" if request.url.path == "/v2/rerank" else "1"}
    return {
        "id": new_id("rerank"),
        "results": found,
        "meta": {"api_version": version, "billed_units": {"search_units": 1}},
    }


async def relevance(request: Request, served: Served, query: str, documents: Sequence[str]) -> list[float]:
    served.require_task("embed", "classify")
    if not isinstance(served.task.prediction_kind, VectorPrediction):
        return await _pair_scores(request, served, query, documents)
    first, *rest = await predict(request, served, [query, *documents], {"normalize": True})
    return [(1 + float(np.dot(first, other))) / 2 for other in rest]


async def _pair_scores(request: Request, served: Served, query: str, documents: Sequence[str]) -> list[float]:
    task: Any = served.task
    if task.pair is False or task.target.outputs != 1:
        raise ApiError(
            400, f"model {served.name!r} does not score pairs of texts with one number, so it cannot rerank",
            param="model",
        )  # fmt: skip
    pairs = [{"text": query, "text_pair": document} for document in documents]
    found = await predict(request, served, pairs, {})
    return [each["value"] if "value" in each else next(iter(each["scores"].values())) for each in found]
