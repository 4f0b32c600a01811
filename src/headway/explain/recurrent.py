"""The story of a recurrent model: its embeddings, its alignment with the source if it has attention, its output, and
what each token adds to it."""

from __future__ import annotations

import torch

from headway.bundle import Bundle
from headway.explain import importance, story, tensors
from headway.explain.decoder_inputs import continuation, generation_of
from headway.explain.encoder_inputs import PreparedInput
from headway.explain.facts import model_facts
from headway.inspect import record
from headway.tasks.task import Task


def collect_recurrent(bundle: Bundle, task: Task, prepared: PreparedInput, *, steps: int, title: str) -> story.Story:
    model = bundle.model
    aligned = getattr(model, "cross", None) is not None
    taps = ["embedding.token", "embedding.sum", *(["cross.weights"] if aligned else [])]
    with torch.no_grad(), record(model, taps) as recorded:
        output = prepared.read_output(model(**prepared.inputs))
    attention = [_alignment(recorded["cross.weights"][0][0], model.config.attention)] if aligned else []
    if output.kind != "next":
        generation = None
    elif model.reads_source:
        generation = generation_of(output, attention[0] if attention else None)
    else:
        generation = continuation(bundle, task, prepared.inputs["inputs"][0].tolist(), steps=steps)
    target = importance.target_of(output, first=prepared.answer_from if "target" in prepared.sequences else None)
    attribution = None
    if target is not None:
        attribution = importance.token_attribution(model, prepared.inputs, target, prepared.sequences)
    token, sums = recorded["embedding.token"], recorded["embedding.sum"]  # source and target share one embedding
    return story.Story(
        title=title,
        model=model_facts(bundle),
        sequences=prepared.sequences,
        task=task.name,
        note=prepared.note,
        embedding=[
            story.EmbeddingView(name, tensors.array(vectors[0]), story.Position("none"), tensors.array(total[0]))
            for name, vectors, total in zip(prepared.sequences, token, sums, strict=True)
        ],
        attention=attention,
        output=output,
        attribution=attribution,
        generation=generation,
    )


def _alignment(weights: torch.Tensor, kind: story.AttentionKind) -> story.Attention:
    values = tensors.array(weights)  # (1, target, source)
    return story.Attention(
        name="cross",
        stack="decoder",
        layer=0,
        kind=kind,
        queries="target",
        keys="source",
        causal=False,
        scale=1.0,
        heads=1,
        kv_heads=1,
        weights=values,
        mask=torch.ones(values.shape[1:], dtype=torch.bool).numpy(),
    )
