"""`headway` in a process of torchrun, of which the second dies once, in the middle of its third step."""

import os
import signal

from headway.cli import main
from headway.tasks.source import ExampleSource

load, loaded = ExampleSource.load, []


def mortal(self, indices, epoch):
    loaded.append(indices)
    if len(loaded) == 3 and os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        os.kill(os.getpid(), signal.SIGKILL)
    return load(self, indices, epoch)


ExampleSource.load = mortal  # type: ignore[method-assign]
main()
