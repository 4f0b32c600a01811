"""XLNet beyond the parity cases: permutation masks with targets, segment memories, and their gradients, against the
reference library; decoding by the query stream against one pass."""

from pathlib import Path
from typing import Any

import pytest
import torch
from parity.cases import XLNET, large_scores
from support.parity import Case, Pair, make_pair
from support.task_run import started
from torch import Tensor

import headway
from headway.bundle import Bundle
from headway.layers.masks import Mask
from headway.layers.positions import Positions
from headway.models.config import ClassifyHeadConfig
from headway.models.encoder import Encoder
from headway.models.outputs import Output
from headway.models.rehead import with_head
from headway.models.two_stream import TwoStream
from headway.preprocess.processor import Processor

pytest.importorskip("transformers", reason="the reference library is a test-only dependency")
BATCH, LENGTH, CLOSE = 3, 7, {"atol": 1e-5, "rtol": 1e-4}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return make_pair(
        Case("XLNetLMHeadModel", XLNET | dict(mem_len=9), prepare=large_scores), tmp_path_factory.mktemp("xlnet")
    )


def test_a_model_from_scratch_opens_in_the_reference_library(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    task, model, _ = started("generate", rows=24, architecture="xlnet")
    saved = Bundle(model.eval(), "headway", task.processor(Processor()), task=task).save(tmp_path / "new")
    theirs, info = transformers.AutoModelForCausalLM.from_pretrained(saved, output_loading_info=True)
    assert type(theirs).__name__ == "XLNetLMHeadModel"
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    ids = torch.randint(5, model.vocab_size or 0, (2, 6))
    with torch.no_grad():
        torch.testing.assert_close(headway.load(saved).logits(input_ids=ids), theirs.eval()(ids).logits, **CLOSE)


def masks_and_targets() -> tuple[Tensor, Tensor, Tensor]:
    """A random permutation mask (1 = hidden), targets, and their one-hot mapping."""
    torch.manual_seed(0)
    hidden = (torch.rand(BATCH, LENGTH, LENGTH) < 0.4).float()
    hidden[:, :, 0] = 0
    targets = torch.stack([torch.randperm(LENGTH)[:4] for _ in range(BATCH)])
    return hidden, targets, torch.nn.functional.one_hot(targets, LENGTH).float()


def streams(model: TwoStream, ids: Tensor, memories: Any = None, segments: Tensor | None = None) -> Output:
    hidden, targets, _ = masks_and_targets()
    past = memories[0].shape[1] if memories else 0
    seen = torch.nn.functional.pad(hidden == 0, (past, 0), value=True)
    content = seen | torch.nn.functional.pad(torch.eye(LENGTH, dtype=torch.bool), (past, 0))
    query = seen.gather(1, targets[:, :, None].expand(-1, -1, past + LENGTH))
    columns = targets + past
    where = model.positions(ids, memories)
    places = Positions(columns, 4, where.keys, columns=columns)
    masks = Mask(content[:, None]), Mask(query[:, None])
    return model.streams(ids, where, masks[0], queries=(places, masks[1]), memories=memories, segments=segments)


def test_two_streams_and_memories(pair: Pair) -> None:
    """Two segments: the second attends to the memory of the first, whose tokens are those of segment 0."""
    torch.manual_seed(1)
    first, second = torch.randint(5, 99, (2, BATCH, LENGTH))
    hidden, _, mapping = masks_and_targets()
    given = {"perm_mask": hidden, "target_mapping": mapping, "use_mems": True}
    with torch.no_grad():
        expected = pair.reference.transformer(first, **given)
        got = streams(pair.model, first)
        torch.testing.assert_close(got.hidden, expected.last_hidden_state, **CLOSE)
        for ours, theirs in zip(got.memories, expected.mems, strict=True):
            torch.testing.assert_close(ours, theirs.transpose(0, 1), **CLOSE)
        expected = pair.reference.transformer(second, mems=expected.mems, **given)
        got = streams(pair.model, second, got.memories)
        torch.testing.assert_close(got.hidden, expected.last_hidden_state, **CLOSE)
        assert got.memories[0].shape[1] == 9  # of 7 + 7 tokens
        for ours, theirs in zip(got.memories, expected.mems, strict=True):
            torch.testing.assert_close(ours, theirs.transpose(0, 1), **CLOSE)


def test_memories_in_both_directions(pair: Pair) -> None:
    torch.manual_seed(1)
    first, second = torch.randint(5, 99, (2, BATCH, LENGTH))
    with torch.no_grad():
        memories = pair.model.content(first).memories
        expected = pair.reference(second, mems=pair.reference(first).mems).logits
        torch.testing.assert_close(pair.model.content(second, memories=memories).logits, expected, **CLOSE)


def test_gradients_of_two_streams_in_train_mode(pair: Pair) -> None:
    ids = torch.randint(5, 99, (BATCH, LENGTH))
    hidden, _, mapping = masks_and_targets()
    weight = torch.randn(BATCH, 4, 48)
    for model in (pair.reference, pair.model):
        model.train().zero_grad()
    try:
        expected = pair.reference.transformer(ids, perm_mask=hidden, target_mapping=mapping).last_hidden_state
        (expected * weight).sum().backward()
        (streams(pair.model, ids).hidden * weight).sum().backward()
    finally:
        pair.reference.eval()
        pair.model.eval()
    theirs, ours = pair.reference.transformer, pair.model
    pairs = {
        "mask_emb": (theirs.mask_emb.grad.flatten(), ours.embedding.query.weight.grad.flatten()),
        "words": (theirs.word_embedding.weight.grad, ours.embedding.tokens.weight.grad),
    }
    for number, (a, b) in enumerate(zip(theirs.layer, ours.stack.blocks, strict=True)):
        bias = b.attention.score_bias
        pairs[f"r {number}"] = a.rel_attn.r.grad.flatten(1).t(), bias.key.weight.grad
        pairs[f"k {number}"] = a.rel_attn.k.grad.flatten(1).t(), b.attention.key.weight.grad
        pairs[f"w {number}"] = a.rel_attn.r_w_bias.grad, bias.content.grad
        pairs[f"rr {number}"] = a.rel_attn.r_r_bias.grad, bias.position.grad
        pairs[f"ff {number}"] = a.ff.layer_1.weight.grad, b.feedforward.up.weight.grad
    for name, (a, b) in pairs.items():
        torch.testing.assert_close(
            b, a, atol=1e-4 * float(a.abs().max() + 1), rtol=1e-3, msg=lambda m, n=name: f"{n}: {m}"
        )


def test_an_order_is_a_permutation_mask(pair: Pair) -> None:
    """Tokens of step -1 are context; a target sees the tokens of earlier steps. The reference is given the mask."""
    ids = torch.randint(5, 99, (BATCH, LENGTH))
    order = torch.tensor([[-1, 2, -1, 0, 1, -1, 3], [0, 1, 2, 3, 4, 5, 6], [3, -1, 1, -1, 0, 2, -1]])
    targets = torch.tensor([[1, 3, 4, 6], [1, 2, 5, 6], [2, 4, 0, 5]])
    mapping = torch.nn.functional.one_hot(targets, LENGTH).float()
    hidden = (order[:, None, :] >= order[:, :, None]) & (order[:, None, :] >= 0)
    with torch.no_grad():
        expected = pair.reference(ids, perm_mask=hidden.float(), target_mapping=mapping).logits
        got = pair.model(ids, order=order, targets=targets).logits
    torch.testing.assert_close(got, expected, **CLOSE)


def test_the_next_token_as_the_reference_predicts_it(pair: Pair) -> None:
    """Left to right: the reference with a causal mask, and a token more as the target."""
    ids = torch.randint(5, 99, (1, 6))
    more = torch.cat([ids, torch.zeros(1, 1, dtype=torch.long)], dim=1)
    hidden, mapping = torch.ones(1, 7, 7).triu(1), torch.zeros(1, 1, 7)
    hidden[0, :, -1], mapping[0, 0, -1] = 1, 1
    with torch.no_grad():
        expected = pair.reference(more, perm_mask=hidden, target_mapping=mapping).logits[:, 0]
        torch.testing.assert_close(pair.model(ids).logits[:, -1], expected, **CLOSE)
        cache = pair.model.new_cache(1)
        steps = [pair.model.step(ids[:, i : i + 1], cache) for i in range(6)]
        torch.testing.assert_close(steps[-1], expected, **CLOSE)


def test_another_head_makes_it_an_encoder(pair: Pair, tmp_path: Path) -> None:
    """It keeps the vector of the query stream, so that the reference library finds every tensor."""
    from transformers import XLNetForSequenceClassification

    from headway.bundle import Bundle

    head = ClassifyHeadConfig(3, pool="last", dense="tanh", dropout=0.1, dense_dropout=False)
    model = with_head(pair.model, head).eval()
    assert isinstance(model, Encoder) and model.segments == 2
    saved = Bundle(model, "xlnet", foreign=dict(pair.ours.foreign)).save(tmp_path / "labels")
    reference, info = XLNetForSequenceClassification.from_pretrained(saved, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    ids, segments = torch.randint(5, 99, (2, 6)), torch.tensor([[0, 0, 0, 1, 1, 2]] * 2)
    with torch.no_grad():
        expected = reference.eval()(ids, token_type_ids=segments).logits
        torch.testing.assert_close(model(ids, segments=segments).logits, expected, **CLOSE)
        assert (model(ids).logits - expected).abs().max() > 1e-3


def test_explain_shows_the_query_stream(pair: Pair) -> None:
    """The weights by which the next token is predicted: a query attends to its own token and those before it."""
    from headway.explain.collect import collect
    from headway.explain.story import dequantize

    ids = [5, 16, 27, 38]
    found = collect(pair.ours, " ".join(map(str, ids)), steps=2)
    weights = torch.from_numpy(dequantize(found.attention[0].weights))  # (head, query, key)
    assert weights.shape == (4, 4, 4) and float(weights.triu(1).max()) == 0
    torch.testing.assert_close(weights.sum(-1), torch.ones(4, 4), atol=1e-2, rtol=0)
    with torch.no_grad():
        best = int(pair.model(torch.tensor([ids])).logits[0, -1].argmax())
    assert found.output.rows[-1].candidates[0].id == best
    assert found.generation is not None and found.generation.steps[0].id == best
