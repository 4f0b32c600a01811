"""Recording: the selected values at taps, without changing them, and without hooks left behind."""

import pytest
import torch
from support.subjects import Subject, make
from torch import Tensor, nn

import headway
from headway.errors import InputError
from headway.inspect import patch, record, record_contexts
from headway.layers import attend
from headway.layers.attend import repeat_groups
from headway.layers.attention import Attention
from headway.layers.tap import Tap
from headway.models.build import build
from headway.models.recipes import Size, recurrent

WEIGHTS = "stack.blocks.1.attention.weights"


def hooked(model: nn.Module) -> list[str]:
    """Modules that still have a hook."""
    return [name for name, module in model.named_modules() if module._forward_hooks or module._forward_pre_hooks]


def whole(subject: Subject, names: str | list[str], **selection: object) -> dict[str, Tensor]:
    with torch.no_grad(), record(subject.model, names, **selection) as seen:
        subject.model(**subject.inputs)
    return {name: values[0] for name, values in seen.items()}


def test_record_is_exported_at_the_top() -> None:
    assert headway.inspect.record is record


def test_recorded_weights_are_those_of_the_explicit_path(subject: Subject) -> None:
    explicit: dict[str, Tensor] = {}
    hooks = [
        module.weights.register_forward_hook(lambda _m, _i, w, n=name: explicit.update({f"{n}.weights": w}))
        for name, module in subject.model.named_modules()
        if isinstance(module, Attention)
    ]
    subject.logits()
    for hook in hooks:
        hook.remove()
    recorded = whole(subject, "*.weights")
    assert list(recorded) == list(explicit) and len(recorded) >= 2
    for name, weights in recorded.items():
        torch.testing.assert_close(weights, explicit[name], atol=1e-6, rtol=0)


def test_they_are_the_weights_of_the_fused_kernel(subject: Subject) -> None:
    """Rows sum to one, and the values mixed by them are what came out of the kernel."""
    recorded = whole(subject, [f"*blocks.*.{tap}" for tap in ("weights", "v", "z")])
    for name, found in recorded.items():
        path, _, tap = name.rpartition(".")
        if tap != "weights":
            continue
        sums = found.sum(-1)
        attends = sums > 0.5  # padding on the left attends to nothing
        assert attends[0].all()
        torch.testing.assert_close(sums, attends.to(sums.dtype), atol=1e-6, rtol=0)
        mixed = found @ repeat_groups(recorded[f"{path}.v"], found.shape[1])
        torch.testing.assert_close(mixed, recorded[f"{path}.z"], atol=1e-5, rtol=1e-5)


def test_recording_changes_nothing(subject: Subject) -> None:
    plain = subject.logits()
    with torch.no_grad(), record(subject.model, "*.attention.*"):
        recorded = subject.model(**subject.inputs).logits
    assert torch.equal(recorded, plain)
    assert hooked(subject.model) == []


def test_recording_changes_nothing_in_train_mode_with_dropout() -> None:
    subject = make("modern decoder")
    subject.model.train()
    torch.manual_seed(3)
    plain = subject.logits()
    torch.manual_seed(3)
    with torch.no_grad(), record(subject.model, "*.weights"):
        recorded = subject.model(**subject.inputs).logits
    assert torch.equal(recorded, plain)
    assert not torch.equal(subject.logits(), plain)  # dropout was on


def test_selected_heads_and_queries_equal_those_of_the_full_recording(subject: Subject) -> None:
    names = [f"*blocks.*.{tap}" for tap in ("scores", "weights", "q", "k", "v", "z")]
    everything = whole(subject, names)
    part = whole(subject, names, heads=[3, 1], queries=[0, -1])
    assert list(part) == list(everything)
    for name, found in everything.items():
        expected = repeat_groups(found, 4)[:, [3, 1]]
        if not name.endswith((".k", ".v")):
            expected = expected[:, :, [0, -1]]
        torch.testing.assert_close(part[name], expected, atol=1e-6, rtol=1e-6)


def test_selection_while_stepping_with_a_cache() -> None:
    subject = make("mistral window")
    model, ids = subject.model, subject.inputs["inputs"]
    with torch.no_grad():
        with record(model, WEIGHTS) as at_once:
            model(ids)
        cache = model.new_cache(2)
        with record(model, WEIGHTS, heads=[2], queries=[-1]) as steps:
            for chunk in ids.split(3, dim=1):
                model.step(chunk, cache)
    for step, last in zip(steps[WEIGHTS], (2, 5, 6), strict=True):
        expected = at_once[WEIGHTS][0][:, 2:3, last : last + 1, : last + 1]
        torch.testing.assert_close(step, expected, atol=1e-6, rtol=1e-5)


def test_only_the_selection_is_computed(gpt2: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    computed = []
    real = attend.softmax
    monkeypatch.setattr(attend, "softmax", lambda scores: computed.append(tuple(scores.shape)) or real(scores))
    whole(gpt2, "stack.blocks.1.attention.[sw]*", heads=[2], queries=[4])
    assert computed == [(2, 1, 1, 7)]  # scores and weights in one call


def test_memory_is_bounded_before_it_is_taken(gpt2: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    one = 2 * 4 * 7 * 7 * 4  # bytes of a layer's weights
    assert len(whole(gpt2, "*.weights", limit=3 * one)) == 3
    computed = []
    real = attend.softmax
    monkeypatch.setattr(attend, "softmax", lambda scores: computed.append(1) or real(scores))
    with pytest.raises(
        InputError, match=rf"blocks\.2\.attention\.weights takes {one:,} bytes .* limit={3 * one - 1:,}"
    ):
        whole(gpt2, "*.weights", limit=3 * one - 1)
    assert len(computed) == 2
    assert hooked(gpt2.model) == []
    with pytest.raises(InputError, match=r"embedding\.sum takes"):
        whole(gpt2, "embedding.sum", limit=10)


def test_values_of_a_cache_are_not_overwritten() -> None:
    subject = make("llama")
    model, ids = subject.model, subject.inputs["inputs"]
    cache = model.new_cache(2, capacity=16)
    with torch.no_grad(), record(model, "stack.blocks.0.attention.k") as seen:
        model.step(ids, cache)
        before = seen["stack.blocks.0.attention.k"][0].clone()
        cache.truncate([2, 2])
        model.step(ids.flip(1), cache)
    assert torch.equal(seen["stack.blocks.0.attention.k"][0], before)


def test_hooks_are_removed_on_exit_also_after_an_error(gpt2: Subject) -> None:
    with pytest.raises(ZeroDivisionError), record(gpt2.model, "*"):
        assert hooked(gpt2.model)
        raise ZeroDivisionError
    assert hooked(gpt2.model) == []
    assert not any(tap.hooked for tap in gpt2.model.modules() if isinstance(tap, Tap))


def test_an_unknown_name_gets_suggestions(gpt2: Subject) -> None:
    with (
        pytest.raises(InputError, match=r"stack\.blocks\.0\.attention\.weights"),
        record(gpt2.model, "stack.blocks.0.atention.weights"),
    ):
        pytest.fail("it went in")


def test_a_name_that_never_fires_gets_suggestions() -> None:
    subject = make("llama")  # its positions are rotary, so nothing passes there
    with pytest.raises(InputError, match=r"'embedding.position' never fired.*close: .*embedding"):
        whole(subject, ["embedding.sum", "embedding.position"])
    whole(subject, "embedding.*")  # a pattern of which something fires
    with pytest.raises(InputError, match="never fired"), record(subject.model, WEIGHTS):
        pass


@pytest.mark.parametrize(
    ("names", "selection", "message"),
    [
        ("*.weights", {"heads": [0, 4]}, r"heads 0 to 3, not 4"),
        ("*.weights", {"heads": [-1]}, r"heads 0 to 3, not -1"),
        ("*.weights", {"queries": [7]}, r"has 7 query positions, so 7 is out of range"),
        ("*.stream", {"heads": [0]}, r"names none"),
    ],
)
def test_a_selection_out_of_range_raises(gpt2: Subject, names: str, selection: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        whole(gpt2, names, **selection)
    assert hooked(gpt2.model) == []


@pytest.mark.parametrize("outside", [True, False])
@pytest.mark.parametrize("heads", [None, [1]])
def test_record_sees_the_value_of_an_intervention(gpt2: Subject, outside: bool, heads: list[int] | None) -> None:
    put = torch.rand(2, 4, 7, 7).softmax(-1)
    contexts = [record(gpt2.model, WEIGHTS, heads=heads), patch(gpt2.model, WEIGHTS, put)]
    first, second = contexts if outside else contexts[::-1]
    with torch.no_grad(), first as a, second as b:
        gpt2.model(**gpt2.inputs)
    seen = a if outside else b
    assert len(seen[WEIGHTS]) == 1
    torch.testing.assert_close(seen[WEIGHTS][0], put if heads is None else put[:, heads])
    assert hooked(gpt2.model) == []


def test_the_recurrent_alignment_is_recorded_and_selected() -> None:
    model = build(recurrent(Size(width=16, layers=1, heads=2), vocab=20, start_id=1)).eval()
    inputs = {"inputs": torch.randint(2, 20, (2, 6)), "decoder_ids": torch.randint(2, 20, (2, 4))}
    everything = whole(Subject(model, inputs), "cross.weights")["cross.weights"]
    assert everything.shape == (2, 1, 4, 6)
    part = whole(Subject(model, inputs), "cross.weights", heads=[0], queries=[1])["cross.weights"]
    assert torch.equal(part, everything[:, :, [1]])


def test_contexts_give_the_weights_of_the_pass(subject: Subject) -> None:
    taps = [f"*blocks.*.{tap}" for tap in ("q", "k", "weights")]
    with torch.no_grad(), record(subject.model, taps) as recorded, record_contexts(subject.model, "*") as contexts:
        subject.model(**subject.inputs)
    assert contexts.keys() == {name.removesuffix(".q") for name in recorded if name.endswith(".q")}
    for name, context in contexts.items():
        q, k, weights = (recorded[f"{name}.{tap}"][0] for tap in ("q", "k", "weights"))
        with torch.no_grad():
            _, computed = subject.model.get_submodule(name).scores_and_weights(q, k, context)
        torch.testing.assert_close(computed, weights, atol=1e-6, rtol=0)
    assert hooked(subject.model) == []
