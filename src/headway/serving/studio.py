"""The page at /, and what its cards need to know about a model."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from fastapi import APIRouter, Request, Response

from headway import __version__
from headway.errors import InputError
from headway.kinds.inputs import PairInput
from headway.kinds.predictions import (
    LabelPrediction,
    LabelSetPrediction,
    NumberPrediction,
    PicturePrediction,
    WordsPrediction,
)
from headway.models.recipes import RECIPES, SIZES
from headway.serving.api_errors import ApiError
from headway.serving.exchange import all_results, client_of
from headway.serving.explanations import Question, story_of
from headway.serving.fields import BoundedRoute
from headway.serving.model_table import ModelEntry
from headway.serving.served import Served
from headway.serving.system import model_facts
from headway.serving.worker import CallTicket
from headway.tasks import TASKS

router = APIRouter(route_class=BoundedRoute)
TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
PAGE = "index.html"
MOST_CELLS = 200 * 200  # of an alignment
MOST_LABELS = 200


@router.get("/")
async def page() -> Response:
    return static(PAGE)


@router.get("/static/{name:path}")
async def asset(name: str) -> Response:
    return static(name)


def assets() -> dict[str, bytes]:
    """The page's files by name, read once: a request never opens a file."""
    return dict(_files(files("headway.serving").joinpath("static"), ""))


def _files(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for each in folder.iterdir():
        if each.is_dir():
            yield from _files(each, f"{prefix}{each.name}/")
        elif each.name.rpartition(".")[2] in TYPES:
            yield prefix + each.name, each.read_bytes()


ASSETS = assets()


def static(name: str) -> Response:
    if name not in ASSETS:
        raise ApiError(404, "there is no such file")
    kind = TYPES[name.rpartition(".")[2]]
    return Response(ASSETS[name], media_type=f"{kind}; charset=utf-8", headers={"Cache-Control": "no-cache"})


@router.get("/studio")
async def studio(request: Request) -> Any:
    """What the page offers."""
    state = request.app.state
    return {
        "version": __version__,
        "models": [studio_facts(entry) for entry in state.models],
        "runs": state.runs is not None,
        "train": state.runs is not None and state.runs.train,
        "key": state.needs_key,
        "upload_bytes": state.limits.media_bytes,
        "tasks": [{"name": name, "summary": entry.summary} for name, entry in TASKS.items()],
        "sizes": list(SIZES),
        "recipes": [{"name": name, "summary": summary} for name, summary in RECIPES.items()],
    }


CLASSES = (LabelPrediction, LabelSetPrediction, NumberPrediction)


def studio_facts(entry: ModelEntry) -> dict[str, Any]:
    """As /v1/models, and what an input of a loaded model may have."""
    out, served = model_facts(entry), entry.served
    if served is None:
        return out
    task: Any = served.task
    labels = getattr(task, "labels", None)
    if labels:
        out["labels"] = [str(label) for label in labels][:MOST_LABELS]
    if isinstance(task.prediction_kind, CLASSES) and not task.input_kind.is_file:
        out["pair"] = isinstance(task.input_kind, PairInput)
    if isinstance(task.prediction_kind, WordsPrediction):
        out["mask"] = task.mask
    if isinstance(task.prediction_kind, PicturePrediction):
        out["options"] = list(task.prediction_kind.options)
    if served.generates and served.model.reads_source:
        out["alignment"] = True
    return out


@router.get("/explain/{id}/alignment")
async def alignment(request: Request, id: str) -> Any:
    """Which source tokens each token of an answer attends to: of a request that was answered with `explain`."""
    question = request.app.state.explanations.find(id)
    async with request.app.state.models.use(question.model) as served:
        ticket = CallTicket(lambda: _alignment(served, question), client=client_of(request))
        (found,) = await all_results(request, served, ticket)
    return found


def _alignment(served: Served, question: Question) -> dict[str, Any]:
    from headway.explain.views import alignment as aligned

    try:
        weights, target, source = aligned(story_of(served, question))
    except InputError as error:
        raise ApiError(400, str(error)) from error
    if weights.size > MOST_CELLS:
        raise ApiError(400, f"the alignment has {weights.size:,} weights; at most {MOST_CELLS:,} are shown")
    return {"source": source, "target": target, "weights": [[round(float(w), 4) for w in row] for row in weights]}
