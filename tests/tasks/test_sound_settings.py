"""Settings that `transcribe` chooses for the recordings and the time."""

import pytest
from support.sounds import tone

from headway.data.facts import Facts, scan
from headway.data.row import Row
from headway.errors import ConfigError
from headway.models.recipes import speech_strides
from headway.tasks import sound_settings
from headway.tasks.sound_settings import LADDER, choose, cost


def facts(count: int = 5, seconds: float = 0.4) -> Facts:
    return scan(Row({"audio": (tone(seconds), 16000), "text": "one"}, f"x:{n}") for n in range(count))


def test_a_run_with_a_time_limit_is_evaluated_a_dozen_times() -> None:
    ten = choose(facts(), recipe="modern", given={"train.minutes": 10})
    assert ten.settings["train.eval_every"] == "50s"
    assert choose(facts(), recipe="finetune", given={"train.minutes": 1}).settings == {"train.eval_every": "20s"}
    assert "train.eval_every" not in choose(facts(), recipe="modern", given={}).settings


def test_a_larger_model_needs_more_speech_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sound_settings, "seconds_per_recording", lambda *given: 0.001)

    def width(hours: float, minutes: float) -> int:
        found = sound_settings.Recordings(round(hours * 3600), 1.0)
        monkeypatch.setattr(sound_settings, "look", lambda *given, **options: found)
        return choose(facts(), recipe="modern", given={"train.minutes": minutes}).settings["model.width"]

    assert width(0.1, 1e6) == 128, "little speech"
    assert width(2, 1e6) == 192 and width(100, 1e6) == 384
    assert width(100, 10) == 128, "little time"
    costs = [cost(size, 1.0, 4) for size in LADDER]
    assert costs == sorted(costs)


def test_what_was_given_is_kept_and_said() -> None:
    chosen = choose(facts(), recipe="modern", given={"model.width": 64, "task.stride": 2})
    assert not any(name.startswith("model.") for name in chosen.settings)
    assert chosen.why == {"recordings": "about 0.4 s each; a vector every 20 ms, 2 + 2 layers of width 64"}
    assert speech_strides(2) == (1, 2) and speech_strides(4) == (1, 2, 2)
    with pytest.raises(ConfigError, match="stride 3 is not one of 2, 4, 8"):
        speech_strides(3)
