"""What each task takes and gives by Hugging Face's inference API."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from headway.serving.api_errors import ApiError
from headway.serving.fields import SEED, Body, Ignored, Penalty, Seed, Share, Temperature, Tokens, Unsupported
from headway.serving.media import png
from headway.serving.served import TRUNCATE
from headway.tasks.task import Task

Top = Annotated[int, Field(ge=1, le=1000)]


class InferenceBody(Body):
    inputs: Any
    parameters: dict[str, Any] | None = None
    options: Ignored = None  # of the hosted service: caching, waiting for a model
    stream: Unsupported = None
    explain: bool | None = None


class Parameters(Body):
    pass


class TaskShape:
    """One task: its parameters, its inputs, its answers."""

    parameters: ClassVar[type[Body]] = Parameters
    media: ClassVar[Literal["text", "image", "audio"]] = "text"
    picture: ClassVar[bool] = False  # the answer is a picture
    at_root: ClassVar[bool] = False  # parameters stand beside `inputs`

    def gathered(self, given: dict[str, Any]) -> dict[str, Any]:
        """The body, with parameters that stand beside the inputs among the parameters."""
        if not self.at_root:
            return given
        own = {name: given[name] for name in given if name in self.parameters.model_fields}
        rest = {name: value for name, value in given.items() if name not in own}
        if not own or not isinstance(rest.get("parameters", {}), dict | None):
            return given
        return {**rest, "parameters": {**(rest.get("parameters") or {}), **own}}

    def read(self, value: Any, param: str) -> Any:
        if not isinstance(value, str):
            raise ApiError(400, f"{param}: expected a text, found {type(value).__name__}", param=param)
        return value

    def options(self, parameters: Any, task: Task) -> dict[str, Any]:
        """Options of the task's prediction."""
        return {}

    def answer(self, prediction: Any, given: Any, parameters: Any) -> Any:
        return prediction

    def whole(self, answers: list[Any], several: bool) -> Any:
        return answers if several else answers[0]


# ---------------------------------------------------------------------------------------- generation


class GenerationParameters(Body):
    """By the names of the reference library."""

    max_new_tokens: Tokens | None = None
    max_length: Tokens | None = None
    min_length: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    num_beams: Annotated[int, Field(ge=1, le=16)] | None = None
    length_penalty: Annotated[float, Field(ge=-10, le=10)] | None = None
    early_stopping: bool | Literal["never"] | None = None
    no_repeat_ngram_size: Annotated[int, Field(ge=0, le=1000)] | None = None
    do_sample: bool | None = None
    temperature: Temperature | None = None
    top_k: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    top_p: Share | None = None
    typical_p: Share | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=10)] | None = None
    frequency_penalty: Penalty | None = None
    seed: Seed | None = None
    stop: Annotated[list[Annotated[str, Field(min_length=1, max_length=512)]], Field(max_length=16)] | None = None

    def chosen(self) -> dict[str, Any]:
        renamed = {"num_beams": "beams", "no_repeat_ngram_size": "no_repeat_ngram", "max_length": "max_new_tokens",
                   "min_length": "min_new_tokens"}  # fmt: skip
        out = {
            renamed.get(name, name): getattr(self, name)
            for name in GenerationParameters.model_fields
            if name != "do_sample" and getattr(self, name) is not None
        }
        if self.do_sample:
            out.setdefault("temperature", 1.0)
        elif self.do_sample is False:
            out["temperature"] = 0.0
        if "seed" in out:
            out["seed"] &= SEED
        return out


class TextGenerationParameters(GenerationParameters):
    return_full_text: bool | None = None
    details: Unsupported = None
    decoder_input_details: Unsupported = None
    grammar: Unsupported = None
    adapter_id: Unsupported = None
    best_of: Unsupported = None
    top_n_tokens: Unsupported = None
    truncate: Unsupported = None
    watermark: Unsupported = None


class SourceParameters(GenerationParameters):
    """Generation parameters stand among the others, or in `generate_parameters`."""

    src_lang: Annotated[str, Field(max_length=32)] | None = None
    tgt_lang: Annotated[str, Field(max_length=32)] | None = None
    clean_up_tokenization_spaces: Ignored = None
    truncation: Literal["do_not_truncate"] | None = None
    generate_parameters: GenerationParameters | None = None


class GenerationShape(TaskShape):
    """The answer is generated in the model's session."""

    name: str

    def __init__(self, name: str, parameters: type[Body]) -> None:
        self.name, self.parameters = name, parameters  # type: ignore[misc]

    def options(self, parameters: Any, task: Task) -> dict[str, Any]:
        inner = getattr(parameters, "generate_parameters", None)
        return {**parameters.chosen(), **(inner.chosen() if inner is not None else {})}

    def answer(self, prediction: Any, given: Any, parameters: Any) -> Any:
        full = self.name == "generated_text" and (parameters or {}).get("return_full_text")
        return {self.name: given + prediction if full else prediction}

    def whole(self, answers: list[Any], several: bool) -> Any:
        return answers


# ---------------------------------------------------------------------------------------- text


class LabelParameters(Body):
    top_k: Top | None = None
    threshold: Annotated[float, Field(ge=0, le=1)] | None = None  # labels of lower scores are left out
    function_to_apply: Literal["sigmoid", "softmax", "none"] | None = None
    truncation: Ignored = None


class LabelShape(TaskShape):
    parameters = LabelParameters

    def read(self, value: Any, param: str) -> Any:
        named = isinstance(value, dict) and (len(value) == 2 or set(value) <= {"text", "text_pair"})
        pair = isinstance(value, list) or named  # the task knows the names of a pair
        return value if pair else super().read(value, param)

    def options(self, parameters: Any, task: Task) -> dict[str, Any]:
        kind = {"labels": "softmax", "multilabel": "sigmoid", "regression": "none"}[getattr(task, "kind", "labels")]
        if parameters.function_to_apply not in (None, kind):
            raise ApiError(
                400, f"function_to_apply: the model was trained with {kind}", param="parameters.function_to_apply"
            )
        if parameters.threshold is not None and kind == "none":
            raise ApiError(400, "threshold: the model predicts a number, not labels", param="parameters.threshold")
        return {} if parameters.top_k is None or kind == "none" else {"top": parameters.top_k}

    def answer(self, prediction: Any, given: Any, parameters: Any) -> Any:
        if "scores" in prediction:
            least = (parameters or {}).get("threshold") or 0.0
            return [{"label": label, "score": score} for label, score in prediction["scores"].items() if score >= least]
        values = prediction.get("values") or {"value": prediction["value"]}
        return [{"label": label, "score": value} for label, value in values.items()]

    def whole(self, answers: list[Any], several: bool) -> Any:
        return answers  # a list for each input, also for one


class EntityParameters(Body):
    aggregation_strategy: Literal["simple", "first", "average", "max"] | None = None
    ignore_labels: Annotated[list[str], Field(max_length=1000)] | None = None
    stride: Unsupported = None


class Entities(TaskShape):
    parameters = EntityParameters

    def answer(self, prediction: Any, given: Any, parameters: Any) -> Any:
        ignored = (parameters or {}).get("ignore_labels") or ()
        return [entity for entity in prediction if entity["entity_group"] not in ignored]


class NamedEntityParameters(Body):
    candidate_labels: Annotated[list[Annotated[str, Field(min_length=1, max_length=200)]], Field(max_length=1000)]
    threshold: Annotated[float, Field(ge=0, le=1)] | None = None
    nested: bool | None = None


class NamedEntities(TaskShape):
    """The answers are those of the tag task; the kinds of entities are the request's."""

    parameters = NamedEntityParameters

    def options(self, parameters: Any, task: Task) -> dict[str, Any]:
        given = {"threshold": parameters.threshold, "nested": parameters.nested}
        chosen = {name: value for name, value in given.items() if value is not None}
        return {"labels": parameters.candidate_labels, **chosen}

    def answer(self, prediction: Any, given: Any, parameters: Any) -> Any:
        renamed = {"label": "entity_group", "text": "word"}
        return [{renamed.get(key, key): each[key] for key in each} for each in prediction["entities"]]


class AnswerParameters(Body):
    top_k: Annotated[int, Field(ge=1, le=100)] | None = None
    align_to_words: Ignored = None
    handle_impossible_answer: Ignored = None  # as the model was trained
    doc_stride: Unsupported = None
    max_answer_len: Unsupported = None
    max_question_len: Unsupported = None
    max_seq_len: Unsupported = None


class AnswerShape(TaskShape):
    parameters = AnswerParameters

    def read(self, value: Any, param: str) -> Any:
        if not isinstance(value, dict) or not all(isinstance(value.get(name), str) for name in ("question", "context")):
            raise ApiError(400, f'{param}: expected {{"question": …, "context": …}}', param=param)
        return {name: value[name] for name in ("question", "context")}

    def options(self, parameters: Any, task: Task) -> dict[str, Any]:
        return {} if parameters.top_k in (None, 1) else {"n": parameters.top_k}

    def answer(self, prediction: Any, given: Any, parameters: Any) -> Any:
        listed = [
            {"answer": each["answer"], "score": each["score"], "start": each["start"], "end": each["end"]}
            for each in (prediction if isinstance(prediction, list) else [prediction])
        ]
        return listed if isinstance(prediction, list) else listed[0]


class FillParameters(Body):
    top_k: Top | None = None
    targets: Unsupported = None


class Filled(TaskShape):
    parameters = FillParameters

    def options(self, parameters: Any, task: Task) -> dict[str, Any]:
        return {"top": parameters.top_k or 5}

    def answer(self, prediction: Any, given: Any, parameters: Any) -> Any:
        several = bool(prediction) and isinstance(prediction[0], list)
        found = [[self._one(each) for each in mask] for mask in (prediction if several else [prediction])]
        return found if several else found[0]

    def _one(self, each: dict[str, Any]) -> dict[str, Any]:
        return {"score": each["score"], "token": each["id"], "token_str": each["token"], "sequence": each["text"]}


class EmbeddingParameters(Body):
    normalize: bool | None = None
    truncate: bool | None = None
    truncation_direction: Literal["right", "Right"] | None = None
    prompt_name: Unsupported = None
    dimensions: Unsupported = None
    encoding_format: Literal["float"] | None = None


class VectorShape(TaskShape):
    parameters = EmbeddingParameters
    at_root = True

    def options(self, parameters: Any, task: Task) -> dict[str, Any]:
        out: dict[str, Any] = {} if parameters.normalize is None else {"normalize": parameters.normalize}
        return out | ({TRUNCATE: True} if parameters.truncate else {})


# ---------------------------------------------------------------------------------------- pictures and sound


class PictureLabels(LabelShape):
    media = "image"

    def whole(self, answers: list[Any], several: bool) -> Any:
        return answers[0]


class DetectionParameters(Body):
    threshold: Annotated[float, Field(ge=0, le=1)] | None = None


class Objects(TaskShape):
    parameters = DetectionParameters
    media = "image"

    def options(self, parameters: Any, task: Task) -> dict[str, Any]:
        return {} if parameters.threshold is None else {"threshold": parameters.threshold}

    def answer(self, prediction: Any, given: Any, parameters: Any) -> Any:
        return [
            {
                "label": each["label"],
                "score": each["score"],
                "box": dict(zip(("xmin", "ymin", "xmax", "ymax"), map(round, each["box"]), strict=True)),
            }
            for each in prediction["objects"]
        ]


class SpeechParameters(Body):
    return_timestamps: bool | Literal["word"] | None = None
    language: Annotated[str, Field(max_length=32)] | None = None
    task: Literal["transcribe", "translate"] | None = None
    generation_parameters: Unsupported = None


class Speech(TaskShape):
    parameters = SpeechParameters
    media = "audio"

    def options(self, parameters: Any, task: Task) -> dict[str, Any]:
        out = {name: value for name in ("language", "task") if (value := getattr(parameters, name)) is not None}
        return out | ({"words": True} if parameters.return_timestamps == "word" else {})

    def answer(self, prediction: Any, given: Any, parameters: Any) -> Any:
        out: dict[str, Any] = {"text": prediction.text.strip()}
        wanted = (parameters or {}).get("return_timestamps")
        if wanted == "word":
            words = [word for segment in prediction.segments for word in segment.words or ()]
            out["chunks"] = [{"text": word.text, "timestamp": [word.start, word.end]} for word in words]
        elif wanted:
            out["chunks"] = [{"text": s.text, "timestamp": [s.start, s.end]} for s in prediction.segments]
        return out


class DrawParameters(Body):
    num_inference_steps: Annotated[int, Field(ge=1, le=1000)] | None = None
    guidance_scale: Annotated[float, Field(ge=0, le=100)] | None = None
    seed: Seed | None = None
    negative_prompt: Unsupported = None
    scheduler: Unsupported = None
    width: Annotated[int, Field(ge=1, le=16384)] | None = None
    height: Annotated[int, Field(ge=1, le=16384)] | None = None


class PictureShape(TaskShape):
    parameters = DrawParameters
    picture = True

    def options(self, parameters: Any, task: Task) -> dict[str, Any]:
        check_size(task, parameters.width, parameters.height)
        given = {"steps": parameters.num_inference_steps, "guidance": parameters.guidance_scale}
        out = {name: value for name, value in given.items() if value is not None}
        return out | ({} if parameters.seed is None else {"seed": parameters.seed & (SEED >> 1)})

    def answer(self, prediction: Any, given: Any, parameters: Any) -> Any:
        return png(prediction)


def check_size(task: Any, width: int | None, height: int | None) -> None:
    """Raises unless these are the sides of the pictures that the model draws."""
    size = task.image_processor.output_size
    if size is not None and (height or size[0], width or size[1]) != tuple(size):
        own = f"{size[1]} × {size[0]}"
        raise ApiError(400, f"the model draws pictures of {own} pixels; leave width and height out", param="size")


SHAPES: dict[str, TaskShape] = {
    "generate": GenerationShape("generated_text", TextGenerationParameters),
    "chat": GenerationShape("generated_text", TextGenerationParameters),
    "translate": GenerationShape("translation_text", SourceParameters),
    "summarize": GenerationShape("summary_text", SourceParameters),
    "classify": LabelShape(),
    "tag": Entities(),
    "entities": NamedEntities(),
    "answer": AnswerShape(),
    "fill": Filled(),
    "embed": VectorShape(),
    "classify-image": PictureLabels(),
    "detect": Objects(),
    "transcribe": Speech(),
    "draw": PictureShape(),
}
