"""Head importance: by ablation, and by the gradient's estimate of it."""

import pytest
import torch
from support.subjects import Subject, make

from headway.errors import InputError
from headway.inspect import HeadImportance, ablate, head_importance, logit
from headway.inspect.parts import attentions_of, taps_of
from headway.models.build import build
from headway.models.outputs import Output
from headway.models.recipes import Size, recurrent


def by_head(rows: list[HeadImportance]) -> dict[tuple[str, int], float]:
    return {(row.part, row.head): row.change for row in rows}


@pytest.mark.parametrize("method", ["ablation", "gradient"])
def test_every_head_is_ranked_once(subject: Subject, method: str) -> None:
    rows = head_importance(subject.model, subject.inputs, logit(1), method=method)
    heads = [
        (part, head) for part, attention in attentions_of(subject.model).items() for head in range(attention.heads)
    ]
    assert sorted(by_head(rows)) == sorted(heads) and len(rows) == len(heads)
    sizes = [abs(row.change) for row in rows]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] > 0


def test_ablation_is_the_change_without_the_head(gpt2: Subject) -> None:
    score = logit(3, position=2, row=1)
    rows = by_head(head_importance(gpt2.model, gpt2.inputs, score, method="ablation"))
    with ablate(gpt2.model, "stack.blocks.1.attention", heads=[2]):
        without = gpt2.logits()[1, 2, 3]
    assert rows["stack.blocks.1.attention", 2] == pytest.approx((gpt2.logits()[1, 2, 3] - without).item(), abs=1e-6)


def test_gradient_estimates_ablation_where_outputs_are_small() -> None:
    """To first order the two are the same: the smaller what the heads write, the closer."""
    for name in ("gpt2", "llama", "bert words", "t5", "modern decoder"):
        gaps = []
        for size in (0.003, 0.0003):
            subject = make(name)
            subject.model.double()
            with torch.no_grad():
                for attention in attentions_of(subject.model).values():
                    attention.output.weight.mul_(size)
            exact, estimate = (
                by_head(head_importance(subject.model, subject.inputs, logit(1), method=method))
                for method in ("ablation", "gradient")
            )
            a, b = (torch.tensor([found[key] for key in exact]) for found in (exact, estimate))
            gaps.append(((a - b).norm() / a.norm()).item())
            assert torch.corrcoef(torch.stack([a, b]))[0, 1] > 0.99, name
            assert torch.corrcoef(torch.stack([a, b.roll(1)]))[0, 1] < 0.9, name  # not in any order
        assert gaps[1] < 0.2 * gaps[0] < 0.02, (name, gaps)


@pytest.mark.parametrize("method", ["ablation", "gradient"])
def test_a_head_with_zero_output_has_no_importance(gpt2: Subject, method: str) -> None:
    with torch.no_grad():
        attentions_of(gpt2.model)["stack.blocks.1.attention"].output.weight[:, 6:12] = 0.0
    rows = head_importance(gpt2.model, gpt2.inputs, logit(1), method=method)
    assert [(row.part, row.head) for row in rows if row.change == 0.0] == [("stack.blocks.1.attention", 1)]


def test_the_gradient_reaches_earlier_layers_without_learning_parameters(gpt2: Subject) -> None:
    learning = by_head(head_importance(gpt2.model, gpt2.inputs, logit(1)))
    gpt2.model.requires_grad_(False)
    frozen = by_head(head_importance(gpt2.model, gpt2.inputs, logit(1)))
    assert frozen == pytest.approx(learning, abs=1e-6)


def test_any_number_of_the_output_can_be_the_score(gpt2: Subject) -> None:
    def doubt(output: Output) -> torch.Tensor:
        assert output.logits is not None
        shares = output.logits[0, -1].softmax(-1)
        return -(shares * shares.log()).sum()

    rows = head_importance(gpt2.model, gpt2.inputs, doubt, parts="stack.blocks.[12].attention")
    assert {row.part for row in rows} == {"stack.blocks.1.attention", "stack.blocks.2.attention"}


def test_the_model_is_left_as_it_was() -> None:
    subject = make("modern decoder")
    subject.model.train()
    subject.model.stack.blocks[0].eval()
    before = [module.training for module in subject.model.modules()]
    first, second = (by_head(head_importance(subject.model, subject.inputs, logit(1))) for _ in range(2))
    assert first == second  # no dropout
    assert [module.training for module in subject.model.modules()] == before
    assert not any(tap.hooked for tap in taps_of(subject.model).values())
    assert all(parameter.grad is None for parameter in subject.model.parameters())


def test_indices_out_of_range_raise(gpt2: Subject) -> None:
    for wrong in (logit(31), logit(0, position=7), logit(0, row=2)):
        with pytest.raises(InputError, match=r"is out of range: the logits have shape \(2, 7, 31\)"):
            head_importance(gpt2.model, gpt2.inputs, wrong)
    with pytest.raises(InputError, match="no attention heads"):
        head_importance(build(recurrent(Size(width=16), vocab=20, start_id=1)), {}, logit(0))
