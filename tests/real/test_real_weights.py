"""Published weights give the published numbers."""

from pathlib import Path

import pytest
import torch

import headway
from headway.checkpoints.json_tensors import read_json_tensors

STORY = " park with Mom. They saw a big pond with many ducks and swans. Lily liked the swans."


def test_stories15m_tells_its_published_story(real_data: Path) -> None:
    bundle = headway.load(real_data / "weights" / "stories15M")
    assert bundle.processor.tokenizer is not None
    start = bundle.processor.tokenizer.encode("Lily and Tom went to the")
    cache = bundle.model.new_cache(1, capacity=64)
    with torch.no_grad():
        ids = [bundle.model.step(torch.tensor([start]), cache).argmax(-1).item()]
        while len(ids) < 26:
            ids.append(bundle.model.step(torch.tensor([[ids[-1]]]), cache).argmax(-1).item())
    text = bundle.processor.tokenizer.decode(start + ids)
    assert text.startswith("Lily and Tom went to the" + STORY)


@pytest.fixture(scope="module")
def nano(real_data: Path) -> tuple[headway.Bundle, dict[str, torch.Tensor]]:
    folder = real_data / "weights" / "gpt-nano-sort"
    _, published = read_json_tensors(folder / "gpt-nano-sort-t0-partials.json")
    return headway.load(folder), published


FIRST_BLOCK = {  # our tap → the published name
    "embedding.token": "tok_emb",
    "embedding.position": "pos_emb",
    "embedding.sum": "x",
    "stack.blocks.0.attention.q": "q",
    "stack.blocks.0.attention.k": "k",
    "stack.blocks.0.attention.v": "v",
    "stack.blocks.0.attention.scores": "att",
    "stack.blocks.0.attention.weights": "attSm",
    "stack.blocks.0.attention_residual.branch": "yProj",
    "stack.blocks.0.attention_residual.stream": "attnResid",
    "stack.blocks.0.feedforward.hidden": "gelu",
    "stack.blocks.0.feedforward_residual.branch": "mlp",
    "stack.blocks.0.feedforward_residual.stream": "mlpResid",
    "stack.blocks.1.feedforward_residual.stream": "block1",
    "stack.blocks.2.feedforward_residual.stream": "block2",
    "stack.final": "ln_f",
}


def test_gpt_nano_sort_has_every_published_activation(nano: tuple[headway.Bundle, dict[str, torch.Tensor]]) -> None:
    bundle, published = nano
    ids = published["idx"].long()
    with headway.inspect.record(bundle.model, list(FIRST_BLOCK)) as seen:
        logits = bundle.logits(input_ids=ids)
    recorded = {name: values[-1] for name, values in seen.items()}
    for tap, name in FIRST_BLOCK.items():
        torch.testing.assert_close(
            recorded[tap], published[name], atol=1e-5, rtol=1e-5, msg=lambda m, n=name: f"{n}: {m}"
        )
    torch.testing.assert_close(logits, published["lm_head"], atol=2e-5, rtol=1e-5)
    torch.testing.assert_close(logits.softmax(-1), published["probs"], atol=1e-5, rtol=1e-5)
    block = bundle.model.stack.blocks[0]
    torch.testing.assert_close(
        block.attention_residual.norm(recorded["embedding.sum"]), published["ln1"], atol=1e-5, rtol=1e-5
    )
    y = recorded["stack.blocks.0.attention.weights"] @ recorded["stack.blocks.0.attention.v"]
    torch.testing.assert_close(y.transpose(1, 2).flatten(2), published["y"], atol=1e-5, rtol=1e-5)
    ln2 = block.feedforward_residual.norm(recorded["stack.blocks.0.attention_residual.stream"])
    torch.testing.assert_close(ln2, published["ln2"], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(block.feedforward.up(ln2), published["fc"], atol=1e-5, rtol=1e-5)


def test_gpt_nano_sort_sorts(nano: tuple[headway.Bundle, dict[str, torch.Tensor]]) -> None:
    bundle, _ = nano
    letters = [0, 2, 1, 0, 1, 2]
    ids = list(letters)
    while len(ids) < 11:
        ids.append(bundle.logits(input_ids=torch.tensor([ids]))[0, -1].argmax().item())
    assert ids[6:] == sorted(letters)[: len(ids) - 6]
