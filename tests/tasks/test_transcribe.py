"""`transcribe`: sound to text, learned from scratch, from tables and folders, and run over recordings of any length."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.sounds import noise, tone, wav
from support.task_run import losses, started, trained

from headway.data.dataset import open_files
from headway.data.row import Row
from headway.errors import DataError, InputError
from headway.preprocess.audio import Sound
from headway.preprocess.audio_processor import AudioProcessor
from headway.preprocess.feature_stream import FeatureStream
from headway.preprocess.sound_augment import changed_features, changed_sound, resampled, shifted, warped
from headway.tasks.clips import clip_size
from headway.tasks.scores import recognition, spoken_words

pytest.importorskip("soundfile", reason="the extra audio is not installed")


def test_it_learns(tmp_path: Path) -> None:
    task, model, data = started("transcribe", rows=64, augment=False, target_limit=20)
    curve = losses(trained(task, model, data, folder=tmp_path, steps=20, batch=16, optimizer="adamw"))
    assert curve[-1] < 0.7 * curve[0]
    [answer] = task.predict(model.eval(), [data.valid().__next__().fields["audio"]])
    assert set(answer) == {"text", "segments", "language"} and answer["segments"][0]["start"] == 0


def test_a_batch_depends_on_the_seeds_of_its_examples_alone() -> None:
    task, _, data = started("transcribe", rows=20)
    examples = [task.examples(row)[0] for row in list(data.train())[:3]]
    seeds = [(0, 1, number) for number in range(3)]

    def features(places: list[int], keys: list[tuple[int, ...]]) -> list[torch.Tensor]:
        batch = task.collate([examples[i] for i in places], seeds=keys, where=[])
        mask = batch.inputs.get("padding_mask", torch.ones(batch.inputs["inputs"].shape[:2])).bool()
        return [row[keep] for row, keep in zip(batch.inputs["inputs"], mask, strict=True)]

    together, alone = features([0, 1, 2], seeds), features([1], [seeds[1]])
    torch.testing.assert_close(together[1], alone[0])
    plain, other = features([1], [()])[0], features([1], [(0, 2, 1)])[0]
    assert plain.shape != alone[0].shape or not torch.equal(plain, alone[0])
    assert other.shape != alone[0].shape or not torch.equal(other, alone[0])
    assert torch.equal(features([1], [()])[0], plain), "without a seed nothing is changed"
    want = AudioProcessor().features(examples[1]["sound"].astype(np.float32) / 32768)
    np.testing.assert_allclose(plain.numpy(), want, atol=1e-5)


def test_changes_keep_the_words() -> None:
    random = np.random.default_rng(0)
    sound = np.concatenate([np.zeros(3000, np.float32), tone(0.5), np.zeros(3000, np.float32)])
    for _ in range(20):
        changed = changed_sound(sound, 16000, random)
        loud = np.flatnonzero(np.abs(changed) > 0.25)
        assert 0.5 / 1.16 < (loud[-1] - loud[0]) / 16000 < 0.5 / 0.84, "speech is faster or slower, and whole"
    assert len(shifted(sound, -9000, -9000)) >= 8000 - 40, "no loud sample is cut off"
    assert len(shifted(np.zeros(100, np.float32), -60, -60)) == 100, "of silence nothing is cut off"
    features = torch.randn(2, 50, 80)
    features[1, 40:] = 0
    changed = changed_features(features, [50, 40], [np.random.default_rng(0), np.random.default_rng(1)])
    assert changed.shape == (2, 50, 80) and not changed[1, 40:].any() and changed[1, :40].any(1).all()
    alone = changed_features(features[1:, :40], [40], [np.random.default_rng(1)])
    torch.testing.assert_close(changed[1:, :40], alone)
    torch.testing.assert_close(warped(features, torch.ones(2)), features)
    ramp = torch.arange(80.0).expand(1, 3, 80)
    torch.testing.assert_close(warped(ramp, torch.tensor([1.25]))[0, 0, :60], torch.arange(60.0) / 1.25)
    torch.testing.assert_close(torch.from_numpy(resampled(np.arange(9, dtype=np.float32), 5)), 2 * torch.arange(5.0))


def recordings(folder: Path, count: int = 12) -> list[tuple[str, str]]:
    rows = []
    for number in range(count):
        name = f"{number}.wav"
        wav(folder / name, tone(0.3, rate=8000, pitch=300 + 40 * number), 8000)
        rows.append((name, ["one", "two"][number % 2]))
    return rows


def test_tables_and_folders(tmp_path: Path) -> None:
    rows = recordings(tmp_path / "a")
    (tmp_path / "a" / "train.csv").write_text("file,text\n" + "".join(f"{n},{t}\n" for n, t in rows[:8]))
    (tmp_path / "a" / "test.csv").write_text("file,text\n" + "".join(f"{n},{t}\n" for n, t in rows[8:]))
    data = open_files(tmp_path / "a", fields=("audio", "text"), columns={})
    assert len([*data.train(), *data.valid()]) == 8 and len(list(data.test())) == 4
    jsonl = tmp_path / "a" / "all.jsonl"
    jsonl.write_text("".join(json.dumps({"path": n, "sentence": t}) + "\n" for n, t in rows))
    assert len(list(open_files(jsonl, fields=("audio", "text"), columns={}).test())) == 12
    recordings(tmp_path / "b", 3)
    for number in range(2):
        (tmp_path / "b" / f"{number}.txt").write_text("one\ntwo\n")
    recordings(tmp_path / "b" / "c", 2)
    (tmp_path / "b" / "c" / "x.trans.txt").write_text("0 THREE FOUR\n1 FIVE\n")
    data = open_files(tmp_path / "b", fields=("audio", "text"), columns={})
    texts = sorted(row.fields["text"] for row in data.test())
    assert texts == ["FIVE", "THREE FOUR", "one two", "one two"]
    assert data.train().skipped == {"recordings without a text": 1}


def test_the_content_of_recordings_identifies_the_data(tmp_path: Path) -> None:
    rows = recordings(tmp_path)
    table = tmp_path / "all.csv"
    table.write_text("file,text\n" + "".join(f"{n},{t}\n" for n, t in rows))
    before = open_files(table, fields=("audio", "text"), columns={}).fingerprint
    wav(tmp_path / "3.wav", noise(0.3, rate=8000), 8000)
    assert open_files(table, fields=("audio", "text"), columns={}).fingerprint != before


def test_bad_recordings_are_named(tmp_path: Path) -> None:
    task, _, _ = started("transcribe", rows=20)
    (tmp_path / "empty.wav").write_bytes(b"")
    with pytest.raises(DataError, match=r"empty\.wav: empty: 0 bytes"):
        task.examples(Row({"audio": tmp_path / "empty.wav", "text": "one"}, "x.csv:3"))
    (tmp_path / "list.csv").write_text("file,text\nmissing.wav,one\n")
    with pytest.raises(DataError, match=r"list\.csv:2: audio: .*missing\.wav: no such file"):
        list(open_files(tmp_path / "list.csv", fields=("audio", "text"), columns={}).train())


def test_long_recordings_are_left_out_and_counted() -> None:
    task, _, _ = started("transcribe", rows=20, limit=1.0)
    rows = [Row({"audio": (tone(seconds), 16000), "text": "one"}, f"x:{seconds}") for seconds in (0.5, 1.0, 2.5)]
    assert [len(task.examples(row)) for row in rows] == [1, 1, 0]
    [line] = task.truncation.summary()
    assert line == ("recording: 1 of 3 left out: over 100 frames of 10 ms (33.3%); the longest had 250 (x:2.5)")
    assert task.token_lengths(rows[2])["recording"] == 250 and task.length_limits()["recording"] == 100


def test_a_recording_is_cut_where_it_is_quiet() -> None:
    sound = np.concatenate([noise(2.4), np.zeros(8000, np.float32), noise(4.0)])
    stream = FeatureStream(Sound(sound, 16000), AudioProcessor())
    assert 240 <= clip_size(stream, 0, 300) <= 290
    assert clip_size(stream, 500, 300) == stream.frames - 500


def test_whisper_options_are_refused_by_other_models() -> None:
    task, model, _ = started("transcribe", rows=20, target_limit=4)
    for option, message in (({"words": True}, "--words is for Whisper"), ({"top_k": 3}, "has no option 'top_k'")):
        with pytest.raises(InputError, match=message):
            task.predict(model, [(tone(0.3), 16000)], **option)


def test_error_rates_are_torchmetrics() -> None:
    found, wanted = ["the cat sat", "A dog."], ["the cat sat down", "a dog"]
    scores: dict[str, Any] = recognition(found, wanted)
    assert scores["wer"] == pytest.approx(3 / 6) and scores["wer_normalized"] == pytest.approx(1 / 6)
    assert scores["exact"] == 0.5 and 0 < scores["cer"] < 1
    assert spoken_words(" It's  'quoted' — well_done, O'Neil! ") == "it's quoted well done o'neil"
