"""`headway` in a process of torchrun: the commands of a JSON list, one after the other, until one fails. The second
process dies once, in the middle of its third step of training. What each worked out of shared work is written down."""

import json
import os
import signal
import sys
from pathlib import Path

from support.quick import shorten_trainings

from headway.cli import main
from headway.distributed import World
from headway.tasks.batches import ExampleSource

RANK = os.environ["RANK"]
load, gather, loaded, done = ExampleSource.load, World.all_gather, [], []


def mortal(self, indices, epoch):
    loaded.append(indices)
    if len(loaded) == 3 and RANK == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        os.kill(os.getpid(), signal.SIGKILL)
    return load(self, indices, epoch)


def counted(self, value):
    if isinstance(value, tuple) and isinstance(value[0], list):  # of `shared`
        done.append(len(value[0]))
    return gather(self, value)


shorten_trainings()
ExampleSource.load, World.all_gather = mortal, counted  # type: ignore[method-assign]
for number, command in enumerate(json.loads(Path(sys.argv[1]).read_text())):
    if RANK == "0":
        print(f"== {number}", flush=True)
    sys.argv, done[:] = ["headway", *command], []
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise
    Path(f"done-{number}-{RANK}.json").write_text(json.dumps(done))
