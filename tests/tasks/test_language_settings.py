"""What is chosen for a language model from scratch with a time limit: size, dropout, weight decay and context."""

from typing import Any

import pytest

from headway.data.facts import Facts, scan
from headway.data.row import Row
from headway.models.recipes import SIZES
from headway.tasks.language_settings import UPDATES, choose_at_pace, choose_for_time, parameters, text_of

PACE = 50e-6  # seconds for a token of the smallest model, about that of two cores
SHAKESPEARE = 1_000_000  # characters of the training part


def chosen(tokens: float, minutes: float, *, vocab: int = 4096, **given: Any) -> dict[str, Any]:
    return choose_at_pace(
        PACE, tokens, vocab=vocab, context=256, given={"train.minutes": minutes, **given}
    ).settings  # fmt: skip


def test_the_reference_run_is_what_is_chosen_for_its_data_and_time() -> None:
    """Tiny Shakespeare by characters, 29 minutes: the settings that were tuned by hand (dev/LOG.md)."""
    found = chosen(SHAKESPEARE, 29, vocab=100)
    assert {name: found[f"model.{name}"] for name in ("width", "layers", "heads", "dropout")} == {
        "width": 256, "layers": 6, "heads": 4, "dropout": 0.1
    }  # fmt: skip
    assert found["train.weight_decay"] == 0.1 and "task.context" not in found


def facts_of(text: str) -> Facts:
    return scan([Row({"text": text}, "text.txt")])


def test_a_short_text_is_read_by_characters_unless_it_has_very_many() -> None:
    def kind(text: str, **given: Any) -> Any:
        choice = choose_for_time(
            facts_of(text), text_of, vocab=4096, context=256, recipe="modern", given={"train.minutes": 1.0, **given}
        )
        return choice.settings.get("task.kind")

    assert kind("x" * 100_000) == "char"
    assert kind("x" * 3_000_000) is None
    assert kind("".join(map(chr, range(0x4E00, 0x5300))) * 10) is None
    assert kind("x" * 100_000, **{"task.vocab": 500}) is None and kind("x" * 100_000, **{"task.kind": "bpe"}) is None


def test_a_text_that_is_seen_often_gets_the_larger_model() -> None:
    assert chosen(SHAKESPEARE / 4, 29, vocab=2000)["model.width"] == 256


def test_a_short_run_has_the_smallest_model() -> None:
    assert chosen(SHAKESPEARE / 4, 3)["model.width"] == 128
    assert chosen(SHAKESPEARE * 100, 3)["model.width"] == 128


def test_large_data_gets_the_larger_model_and_small_data_the_regularised_one() -> None:
    large, small = chosen(100e6, 2000), chosen(5000, 2000)
    assert (large["model.width"], large["model.dropout"]) == (512, 0.0) and "train.weight_decay" not in large
    assert (small["model.width"], small["model.dropout"]) == (128, 0.2) and small["train.weight_decay"] == 0.1
    assert parameters(SIZES["small"], vocab=4096) > 30 * 5000


def test_a_moment_gets_a_shorter_context() -> None:
    contexts = [chosen(SHAKESPEARE, minutes).get("task.context", 256) for minutes in (0.05, 0.2, 1, 3)]
    assert contexts == sorted(contexts) and contexts[0] == 64 and contexts[-1] == 256
    seen = 0.2 * 60 / (PACE * parameters(SIZES["tiny"], vocab=4096) / parameters(SIZES["tiny"], vocab=0))
    assert seen / (4 * contexts[1]) >= UPDATES


def test_what_is_given_is_respected() -> None:
    found = chosen(SHAKESPEARE, 29, **{"model.width": 64, "model.layers": 2, "task.context": 32})
    assert (found["model.width"], found["model.layers"]) == (64, 2) and "task.context" not in found


@pytest.mark.parametrize(
    "given", [{}, {"train.steps": 100}, {"train.minutes": 1.0, "task.architecture": "lstm"}]
)  # fmt: skip
def test_nothing_is_chosen_without_a_time_limit_or_for_a_recurrent_model(given: dict[str, Any]) -> None:
    assert not choose_for_time(
        facts_of("x" * SHAKESPEARE), text_of, vocab=4096, context=256, recipe="modern", given=given
    ).settings


def test_nothing_is_chosen_for_a_trained_model_and_for_no_text() -> None:
    given = {"train.minutes": 1.0}
    assert not choose_for_time(
        facts_of("x" * SHAKESPEARE), text_of, vocab=4096, context=256, recipe="finetune", given=given
    ).settings
    assert not choose_for_time(Facts(), text_of, vocab=4096, context=256, recipe="modern", given=given).settings
    assert choose_for_time(
        facts_of("x" * SHAKESPEARE), text_of, vocab=4096, context=256, recipe="modern", given=given
    ).settings  # control
