"""/studio/runs, /studio/data and /studio/check: trainings and their data, for the page."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import Field

from headway.errors import did_you_mean
from headway.jobs.run_folder import PLAN, read_run_json, run_file
from headway.models.recipes import Recipe, SizeName
from headway.serving.api_errors import ApiError, without_folders
from headway.serving.exchange import in_thread, unless_gone
from headway.serving.fields import Body, BoundedRoute, Name
from headway.serving.runs_data import UPLOADS, Uploads, changing
from headway.serving.runs_log import LogReader, events
from headway.serving.runs_process import output_of
from headway.serving.runs_table import OUTPUT_BYTES, RunEntry, RunTable
from headway.tasks import TASKS
from headway.training.folder import LOCK

T = TypeVar("T")
router = APIRouter(route_class=BoundedRoute)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
MOST_TRAININGS = 4  # that run at a time
MOST_STREAMS = 64
CHECK_SECONDS = 300.0
SETTINGS = {"lr": "train.lr"}  # fields that are a --set of the command
Steps = Annotated[int, Field(ge=1, le=100_000_000)]
Column = Annotated[str, Field(min_length=1, max_length=200)]


class Columns(Body):
    text: Column | None = None
    label: Column | None = None
    source: Column | None = None
    target: Column | None = None
    image: Column | None = None
    caption: Column | None = None


class DataBody(Body):
    task: Name
    data: Name | None = None  # None: the built-in data
    valid: Name | None = None
    columns: Columns | None = None


class StartBody(DataBody):
    name: Name
    start: Name | None = None
    size: SizeName | None = None
    recipe: Recipe | None = None
    steps: Steps | None = None
    epochs: Annotated[int, Field(ge=1, le=100_000)] | None = None
    minutes: Annotated[float, Field(gt=0, le=100_000)] | None = None
    seed: Annotated[int, Field(ge=0, le=2**31)] | None = None
    lr: Annotated[float, Field(gt=0, le=10)] | None = None


class ResumeBody(Body):
    steps: Steps | None = None


def runs_of(request: Request, *, train: bool = False) -> RunTable:
    """The table of runs; 403 where the page may not train."""
    found: RunTable | None = request.app.state.runs
    if found is None:
        raise ApiError(404, "this server shows no runs: start it with --runs DIR", code="no_runs")
    if train and not found.train:
        raise ApiError(403, "training from the page is off: start the server with --train", code="no_training")
    return found


# ---------------------------------------------------------------------------------------- reading


@router.get("/studio/runs")
async def list_runs(request: Request) -> Any:
    table = runs_of(request)
    found = await in_thread(lambda: [run.facts() for run in table.all()])
    return {"runs": found, "train": table.train}


@router.get("/studio/runs/{name:path}/events")
async def run_events(request: Request, name: str) -> Response:
    """The log from Last-Event-ID on, and what changes."""
    table = runs_of(request)
    run = await in_thread(table.find, name)
    state = request.app.state
    if state.streams >= MOST_STREAMS:
        raise ApiError(429, f"{MOST_STREAMS} streams are open, which is the limit", headers={"Retry-After": "5"})
    reader = LogReader(run.folder, request.headers.get("last-event-id"))

    async def counted() -> AsyncIterator[bytes]:
        state.streams += 1
        try:
            parts = events(
                reader, lambda: table.find(name).facts(), stopping=lambda: state.stopping,
                active=lambda facts: facts["state"] in ("starting", "running", "stopping"),
            )  # fmt: skip
            async for part in parts:
                yield part
        finally:
            state.streams -= 1

    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    return StreamingResponse(counted(), media_type="text/event-stream", headers=headers)


@router.get("/studio/runs/{name:path}")
async def one_run(request: Request, name: str) -> Any:
    table = runs_of(request)

    def read() -> dict[str, Any]:
        run = table.find(name)
        plan = None if run.summary is None or run.state == "unreadable" else read_run_json(run.folder, PLAN)
        output = table.processes.output(name, OUTPUT_BYTES)
        return run.facts() | {"plan": plan and _shown(plan), "output": output}

    return await in_thread(read)


def _shown(plan: dict[str, Any]) -> dict[str, Any]:
    """The settings of a run by name, without the paths of its files."""
    sections = {name: value for name in ("model", "train", "options") if isinstance(value := plan.get(name), dict)}
    flat = {f"{section}.{name}": v for section, values in sections.items() for name, v in values.items()}
    return {name: v for name, v in flat.items() if isinstance(v, str | int | float | bool)} | {
        "why": {str(key): str(v) for key, v in plan["why"].items()} if isinstance(plan.get("why"), dict) else {}
    }


# ---------------------------------------------------------------------------------------- training


@router.post("/studio/runs", status_code=201)
async def start_run(request: Request, body: StartBody) -> Any:
    table = runs_of(request, train=True)
    require_task(body.task)
    if NAME.fullmatch(body.name) is None or body.name == UPLOADS:
        raise ApiError(
            400, f"name: {body.name!r:.80} is not a name for a run: use up to 64 letters, digits and . _ - (not "
            f"first), and not {UPLOADS!r}", param="name",
        )  # fmt: skip
    lengths = {name: v for name in ("steps", "epochs", "minutes") if (v := getattr(body, name)) is not None}
    if len(lengths) > 1:
        raise ApiError(400, f"{' and '.join(lengths)}: give one of them", param=next(iter(lengths)))
    if body.start is not None and (body.size or body.recipe):
        raise ApiError(400, "size and recipe are of a model from scratch; leave them out with start", param="size")

    def start() -> dict[str, Any]:
        _require_place(table)
        folder = table.folder / body.name
        record = table.processes.records().get(body.name)
        if folder.exists() or folder.is_symlink() or (record is not None and record.is_alive()):
            raise ApiError(409, f"name: there is a run or folder {body.name!r} already; choose another name",
                           param="name", code="run_exists")  # fmt: skip
        options = {"size": body.size, "recipe": body.recipe, "seed": body.seed, **lengths}
        if body.start is not None:
            options["start"] = _start_folder(request, table, body.start)
        arguments = ["train", body.task, *_data_arguments(table, body), f"--out={folder}", "--keep-states"]
        arguments += [f"--{name}={value}" for name, value in options.items() if value is not None]
        arguments += [f"--set={key}={v!r}" for name, key in SETTINGS.items() if (v := getattr(body, name)) is not None]
        table.processes.start(body.name, arguments, task=body.task)
        return table.find(body.name).facts()

    return await _change(table, start)


@router.post("/studio/runs/{name:path}/stop")
async def stop_run(request: Request, name: str) -> Any:
    """SIGTERM: the training saves its state and ends."""
    table = runs_of(request, train=True)

    def stop() -> dict[str, Any]:
        run = table.find(name)
        if not run.is_active:
            raise ApiError(409, f"run {name!r:.100} is {run.state}, so there is nothing to stop", param="name")
        table.processes.stop(name, lock=run_file(run.folder, LOCK))
        return table.find(name).facts()

    return await in_thread(stop)


@router.post("/studio/runs/{name:path}/resume")
async def resume_run(request: Request, name: str, body: ResumeBody) -> Any:
    """Continues a run exactly where it stopped; with `steps` it is extended."""
    table = runs_of(request, train=True)

    def resume() -> dict[str, Any]:
        _require_place(table)
        run = table.find(name)
        if not run.facts()["resumable"]:
            raise ApiError(409, f"run {name!r:.100} is {run.state}, so it cannot be resumed", param="name")
        if run.state == "finished" and body.steps is None:
            raise ApiError(400, "steps: the run is finished; give the number of steps to extend it to", param="steps")
        arguments = ["train", run.task, "--resume", f"--out={run.folder}"]
        arguments += [] if body.steps is None else [f"--steps={body.steps}"]
        table.processes.start(name, arguments, task=run.task)
        return table.find(name).facts()

    return await _change(table, resume)


@router.post("/studio/runs/{name:path}/serve")
async def serve_run(request: Request, name: str) -> Any:
    """Adds a finished run's model to those that are served."""
    table, models = runs_of(request, train=True), request.app.state.models
    run = await in_thread(table.find, name)
    if run.state != "finished":
        raise ApiError(409, f"run {name!r:.100} is {run.state}; a finished one can be tried", param="name")
    known = next((entry.name for entry in models if entry.folder.resolve() == run.folder.resolve()), None)
    return {"model": known or await models.add(name, run.folder)}


@router.delete("/studio/runs/{name:path}")
async def forget_run(request: Request, name: str) -> Any:
    """Removes the record of a process that ended before there was a run. Runs themselves are never removed."""
    table = runs_of(request, train=True)

    def forget() -> dict[str, Any]:
        run = table.find(name)
        if run.summary is not None or run.is_active:
            raise ApiError(409, f"run {name!r:.100} has a folder, which is not removed from here", param="name")
        table.processes.forget(name)
        return {"removed": name}

    return await _change(table, forget)


async def _change(table: RunTable, call: Callable[[], T]) -> T:
    """In the turn of the request, so that what it checks stays true until it has acted."""

    def changed() -> T:
        with changing(table.folder):
            return call()

    async with table.turn:
        return await in_thread(changed)


def require_task(name: str) -> None:
    if name not in TASKS:
        raise ApiError(400, f"task {name!r:.80}: there is no such task. {did_you_mean(name, TASKS)}", param="task")


def _require_place(table: RunTable) -> None:
    running = [run.name for run in table.all() if run.is_active]
    if len(running) >= MOST_TRAININGS:
        raise ApiError(429, f"{len(running)} trainings run, which is the limit: stop one, or wait",
                       headers={"Retry-After": "30"})  # fmt: skip


def _start_folder(request: Request, table: RunTable, name: str) -> Path:
    """The folder of a served model, or of a finished run."""
    known = {entry.name: entry.folder for entry in request.app.state.models}
    runs: dict[str, RunEntry] = {run.name: run for run in table.all() if run.state == "finished"}
    if name in known:
        return known[name]
    if name not in runs:
        hint = did_you_mean(name, [*known, *runs])
        raise ApiError(400, f"start: {name!r:.80} is neither a served model nor a finished run. {hint}", param="start")
    return runs[name].folder


def _data_arguments(table: RunTable, body: DataBody) -> list[str]:
    uploads = Uploads(table.folder)
    out = [] if body.data is None else [str(uploads.find(body.data, param="data").resolve())]
    out += [] if body.valid is None else [f"--valid={uploads.find(body.valid, param='valid').resolve()}"]
    columns = {} if body.columns is None else body.columns.model_dump(exclude_none=True)
    return out + [f"--{name}={column}" for name, column in columns.items()]


# ---------------------------------------------------------------------------------------- data


@router.get("/studio/data")
async def list_data(request: Request) -> Any:
    table = runs_of(request)
    return {"files": await in_thread(Uploads(table.folder).facts)}


@router.put("/studio/data/{name}", status_code=201)
async def upload(request: Request, name: str) -> Any:
    """The raw bytes of one file."""
    table = runs_of(request, train=True)
    data = await request.body()
    async with table.turn:
        saved = await in_thread(Uploads(table.folder).save, name, data)
    return {"name": saved, "bytes": len(data)}


@router.delete("/studio/data/{name}")
async def remove_data(request: Request, name: str) -> Any:
    table = runs_of(request, train=True)
    await in_thread(Uploads(table.folder).remove, name)
    return {"removed": name}


@router.post("/studio/check")
async def check(request: Request, body: DataBody) -> Response:
    """What `headway check` finds, in a process of its own; one at a time."""
    table = runs_of(request, train=True)
    require_task(body.task)
    arguments = ["check", body.task, *await in_thread(_data_arguments, table, body), "--json"]
    async with request.app.state.checking:
        work = output_of(arguments, seconds=CHECK_SECONDS)
        code, out, err = await unless_gone(request, work)
    if code:
        message = err.decode(errors="replace").strip().removeprefix("error: ") or f"exit code {code}"
        message = without_folders(message.replace(f"{table.folder.resolve() / UPLOADS}/", ""))
        raise ApiError(400, message, param="data", code="data_refused")
    return JSONResponse(json.loads(out))
