"""`headway run`: streaming, batches, JSON, constraints, and errors."""

import json
import re
import shutil
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from support.commands import headway
from typer.testing import CliRunner, Result

from headway import jobs
from headway.cli import app
from headway.errors import HeadwayError, InputError
from headway.generation.option import option_of
from headway.generation.settings import GenerationSettings
from headway.printable import PROSE, printable


def run(*args: str | Path, **more: Any) -> Result:
    result = CliRunner().invoke(app, ["run", *map(str, args)], **more)
    if isinstance(result.exception, HeadwayError):
        raise result.exception
    return result


def answers(result: Result) -> list[Any]:
    assert result.exit_code == 0, result.output
    return [json.loads(line)["answer"] for line in result.stdout.splitlines()]


def test_one_input_is_streamed_and_is_the_same_as_its_json(language_model: Path) -> None:
    options = ["--max-new-tokens", "12", "--seed", "3"]
    answer = answers(run(language_model, "The import", *options, "--json"))[0]
    streamed = run(language_model, "The import", *options)
    assert streamed.exit_code == 0 and streamed.stdout == printable(answer["text"], keep=PROSE) + "\n"
    assert answer["finished_by"] == "length" and answer["score"] < 0 and "tokens" not in answer


def test_a_seed_is_an_inputs_own_in_any_batch(language_model: Path, tmp_path: Path) -> None:
    """Also past the size of a batch: no two inputs of a file share their random numbers."""
    prompts = [f"prompt {i % 2}" for i in range(jobs.inference.CHUNK + 2)]
    (tmp_path / "prompts.txt").write_text("\n".join(prompts) + "\n")
    options = ["--max-new-tokens", "6", "--temperature", "1", "--json"]
    batch = answers(run(language_model, "--file", tmp_path / "prompts.txt", "--seed", "7", *options))
    assert len(batch) == len(prompts)
    for i in (1, jobs.inference.CHUNK):
        assert answers(run(language_model, prompts[i], "--seed", str(7 + i), *options))[0]["text"] == batch[i]["text"]
    assert batch[0]["text"] != batch[jobs.inference.CHUNK]["text"]
    piped = answers(run(language_model, "--seed", "7", *options, input="\n".join(prompts[:3]) + "\n"))
    assert [each["text"] for each in piped] == [each["text"] for each in batch[:3]]


def test_log_probabilities(language_model: Path) -> None:
    answer = answers(run(language_model, "The", "--max-new-tokens", "5", "--temperature", "0", "--json", "--logprobs"))[
        0
    ]
    assert len(answer["tokens"]) == 5 and all(token["text"] and token["logprob"] < 0 for token in answer["tokens"])
    assert answer["score"] == pytest.approx(sum(token["logprob"] for token in answer["tokens"]) / 5, abs=1e-4)


def test_several_answers_and_beams(language_model: Path) -> None:
    [found] = answers(run(language_model, "The", "--beams", "3", "--n", "3", "--max-new-tokens", "5", "--json"))
    assert [each["score"] for each in found] == sorted((each["score"] for each in found), reverse=True)
    shown = run(language_model, "The", "--beams", "3", "--n", "2", "--max-new-tokens", "5").stdout
    assert shown.startswith(f"[1] {found[0]['text']}\n[2] ")
    single = run(language_model, "The", "--beams", "3", "--max-new-tokens", "5").stdout
    assert single == found[0]["text"] + "\n"
    diverse = ["--beams", "4", "--groups", "2", "--diversity-penalty", "9", "--n", "4"]
    assert len(answers(run(language_model, "The", *diverse, "--max-new-tokens", "5", "--json"))[0]) == 4


def test_constraints(language_model: Path, tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"age": {"type": "integer", "maximum": 99, "minimum": 0}},
              "required": ["age"], "additionalProperties": False}  # fmt: skip
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    for seed in "123":
        result = run(language_model, "Ada is", "--json-schema", tmp_path / "schema.json", "--seed", seed)
        assert result.exit_code == 0 and 0 <= json.loads(result.stdout)["age"] <= 99
        result = run(language_model, "Call", "--regex", "[0-9]{3}-[0-9]{2}", "--seed", seed)
        assert re.fullmatch("[0-9]{3}-[0-9]{2}\n", result.stdout)
    [answer] = answers(run(language_model, "Ada", "--json-schema", tmp_path / "schema.json", "--json"))
    assert answer["fits"] is True and answer["finished_by"] == "complete"


def test_an_answer_that_is_cut_off_does_not_match_the_constraint(language_model: Path) -> None:
    result = run(language_model, "Call", "--regex", "[0-9]{30}", "--max-new-tokens", "4")
    assert result.exit_code == 1 and "do not match the constraint" in result.stderr
    result = run(language_model, "Call", "--regex", "[0-9]{30}", "--max-new-tokens", "4", "--json")
    assert result.exit_code == 1 and json.loads(result.stdout)["answer"]["fits"] is False


def test_a_context_that_is_full(language_model: Path) -> None:
    long = "the import statement " * 40
    with pytest.raises(HeadwayError, match=r"context is 128 tokens.*window"):
        run(language_model, long)
    result = run(language_model, long, "--overflow", "window", "--max-new-tokens", "150", "--json", "--logprobs")
    assert len(answers(result)[0]["tokens"]) == 150 or answers(result)[0]["finished_by"] == "eos"


def test_prefix_stop_and_the_other_options(language_model: Path) -> None:
    [answer] = answers(run(language_model, "The", "--prefix", " import", "--max-new-tokens", "5", "--json"))
    assert answer["text"].startswith(" import")
    whole = answers(run(language_model, "The", "--max-new-tokens", "20", "--seed", "1", "--json"))[0]["text"]
    cut = answers(run(language_model, "The", "--max-new-tokens", "20", "--seed", "1", "--stop", whole[5:8], "--json"))[
        0
    ]
    assert cut["finished_by"] == "stop" and cut["text"] == whole[: whole.find(whole[5:8])]
    rest = ["--min-p", "0.1", "--typical-p", "0.9", "--repetition-penalty", "1.2", "--frequency-penalty", "0.1",
            "--presence-penalty", "0.1", "--no-repeat-ngram", "3", "--min-new-tokens", "2", "--top-k", "9"]  # fmt: skip
    assert run(language_model, "The", *rest, "--max-new-tokens", "5").exit_code == 0


def test_a_translator_searches_samples_and_follows_constraints(translator: Path) -> None:
    [answer] = answers(run(translator, "3 May 1998", "--json"))
    assert answer["text"] + "\n" == run(translator, "3 May 1998").stdout
    options = ["--temperature", "1", "--json", "--max-new-tokens", "8"]
    texts = ["3 May 1998 and a few words more", "1", "4 June"]
    both = answers(run(translator, *texts, "--seed", "4", *options))
    assert both[2]["text"] == answers(run(translator, texts[2], "--seed", "6", *options))[0]["text"]
    result = run(translator, "3 May 1998", "--regex", "[0-9]{4}-[0-9]{2}-[0-9]{2}")
    assert re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}\n", result.stdout)
    assert len(answers(run(translator, "3 May", "--n", "7", "--json"))[0]) == 7
    short = ["3 May 1998", "--max-new-tokens", "2", "--json"]
    assert (
        answers(run(translator, *short, "--coverage-penalty", "0.3"))[0]["score"]
        < answers(run(translator, *short))[0]["score"]
    )


def test_a_prefix_takes_its_part_of_the_default_length(language_model: Path, translator: Path) -> None:
    """Also under beam search, where a long answer is the rule; a length that is given is not changed."""
    long, prefix = "hello " * 12, "the statement on the import of May"
    for model, given in ((translator, "3 May 1998"), (language_model, long)):
        for options in (["--beams", "3"], ["--beams", "1", "--temperature", "0"]):
            [answer] = answers(run(model, given, "--prefix", prefix, *options, "--json"))
            assert answer["text"].startswith(prefix)
    with pytest.raises(HeadwayError, match="max_new_tokens is 40, but the model's context is 41"):
        run(translator, "3 May 1998", "--prefix", prefix, "--max-new-tokens", "40")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--temperature", "-1"], "temperature is -1.0"),
        (["--top-p", "0"], "top_p is 0.0"),
        (["--regex", "("], "regex cannot be used"),
        (["--json-schema", "missing.json"], "missing.json: no such file"),
        (["--overflow", "maybe"], "overflow is 'maybe'"),
        (["--beams", "2", "--temperature", "1"], "search or sample"),
        (["--n", "3", "--temperature", "0"], "n is 3"),
    ],
)
def test_wrong_options_are_named(language_model: Path, args: list[str], message: str) -> None:
    with pytest.raises(HeadwayError, match=re.escape(message)):
        run(language_model, "The", *args)


def test_a_vector_is_shown_in_a_line_and_written_in_full(embedder: Path) -> None:
    with pytest.raises(HeadwayError, match="task embed does not generate text, so --top-k does not apply"):
        run(embedder, "a text", "--top-k", "3")
    shown = run(embedder, "a text").stdout
    assert re.fullmatch(r"32 numbers: (-?0\.\d{4} ){6}… \(all of them: --json\)\n", shown)
    assert len(answers(run(embedder, "a text", "--json"))[0]) == 32


def test_a_refused_input_of_a_long_file_can_be_found(language_model: Path, tmp_path: Path) -> None:
    size = jobs.inference.CHUNK
    (tmp_path / "prompts.txt").write_text("hello\n" * (size + 3) + "hello " * 300 + "\n")
    with pytest.raises(InputError, match=f"after the first {size}, counted from there: prompt 3 has"):
        run(language_model, "--file", tmp_path / "prompts.txt", "--max-new-tokens", "2")


@pytest.mark.parametrize("command", ["run", "chat", "evaluate"])
def test_generation_options_follow_their_declarations(command: str) -> None:
    shown = " ".join(CliRunner().invoke(app, [command, "--help"]).stdout.split())
    for declared in fields(GenerationSettings):
        flag = f"--{declared.name.replace('_', '-')} "
        assert (flag in shown) == (command in option_of(declared).commands), flag


def test_the_weights_of_a_run_that_has_not_finished_are_called_so(
    language_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By `run` and by `serve`, under whatever name."""
    monkeypatch.setattr("headway.serving.server.Server.run", lambda self, ready: None)
    shutil.copytree(language_model, tmp_path / "run")
    commands = (["run", "run", "The", "--max-new-tokens", "1"], ["serve", "NAME=run", "--port", "0"])
    for command in commands:
        assert "not finished" not in headway(*command, cwd=tmp_path).stderr
    (tmp_path / "run" / "training").mkdir()
    (tmp_path / "run" / "training" / "plan.json").write_text("{}")
    for command in commands:
        shown = headway(*command, cwd=tmp_path)
        assert shown.returncode == 0 and "the run in run has not finished" in shown.stderr
