"""The conversations that the chat benchmarks learn from, as JSON lines: people chatting (chitchat) and instructions.

    python -m benchmarks.chat_data DATA-FOLDER OUT

Of every source a twentieth is held out, chosen by a hash of its text: half of it to choose settings (valid.jsonl), half
for the scores (test.jsonl).
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Messages = list[dict[str, str]]
PIECE = 700  # characters of a conversation: about 200 tokens
HELD_OUT = 20  # one in so many
MARKS = ("### Instruction:\n", "\n\n### Response:")


def chitchat(folder: Path) -> Iterator[list[Messages]]:
    """Each dialogue in pieces. The person who begins is the user; what one says at a time is one message."""
    for talk in json.loads(gzip.decompress((folder / "chitchat/dataset.json.gz").read_bytes())).values():
        turns = [" ".join(each["text"] for each in turn) for turn in talk["messages"] if turn]
        pieces: list[Messages] = [[]]
        for number, text in enumerate(turns):
            role = "assistant" if number % 2 else "user"
            if role == "user" and sum(len(message["content"]) for message in pieces[-1]) > PIECE:
                pieces.append([])
            pieces[-1].append({"role": role, "content": text})
        yield [piece for piece in map(_to_last_answer, pieces) if piece]


def _to_last_answer(messages: Messages) -> Messages:
    return messages if len(messages) % 2 == 0 else messages[:-1]


def instructions(folder: Path) -> Iterator[list[Messages]]:
    for line in (folder / "instruct/dolly_hhrlhf_train_small.jsonl").read_text().splitlines():
        row = json.loads(line)
        asked = row["prompt"].split(MARKS[0], 1)[-1].split(MARKS[1])[0]
        yield [_exchange(asked, row["response"])]
    for name in ("self_instruct_seed_tasks.jsonl", "user_oriented_instructions.jsonl"):
        for line in (folder / "instruct" / name).read_text().splitlines():
            row = json.loads(line)
            pairs = [
                ("\n\n".join(filter(None, [row["instruction"], each["input"]])), each) for each in row["instances"]
            ]
            yield [_exchange(asked, each["output"]) for asked, each in pairs]


def _exchange(asked: str, answer: str) -> Messages:
    return [{"role": "user", "content": asked.strip()}, {"role": "assistant", "content": answer.strip()}]


def write(folder: Path, out: Path) -> dict[str, Path]:
    """train.jsonl, valid.jsonl and test.jsonl. All pieces of a dialogue, and equal prompts, are in the same one."""
    out.mkdir(parents=True, exist_ok=True)
    lines: dict[str, list[str]] = {"train": [], "valid": [], "test": []}
    for pieces in [*chitchat(folder), *instructions(folder)]:
        if pieces:
            place = int(hashlib.sha256(pieces[0][0]["content"].encode()).hexdigest(), 16) % (2 * HELD_OUT)
            part = {0: "valid", 1: "test"}.get(place, "train")
            lines[part] += [json.dumps({"messages": piece}, ensure_ascii=False) for piece in pieces]
    for part, found in lines.items():
        (out / f"{part}.jsonl").write_text("\n".join(found) + "\n", encoding="utf-8")
    return {part: out / f"{part}.jsonl" for part in lines}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    given: Any = parser.parse_args()
    for part, path in write(given.data, given.out).items():
        print(f"{part}: {len(path.read_text(encoding='utf-8').splitlines()):,} conversations")


if __name__ == "__main__":
    main()
