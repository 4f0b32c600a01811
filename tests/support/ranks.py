"""Several ranks without torchrun: this process has imported torch, and its copies need not do so again."""

import os
import socket
import sys
import traceback
from collections.abc import Callable


def fork_ranks(size: int, work: Callable[[int], None], *, address: str = "127.0.0.1") -> None:
    """Run `work` in `size` processes that see each other as torchrun's do; all must succeed."""
    with socket.socket() as free:
        free.bind((address, 0))
        port = free.getsockname()[1]
    children = [_fork(rank, work, WORLD_SIZE=size, MASTER_ADDR=address, MASTER_PORT=port) for rank in range(size)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert codes == [0] * size, f"exit codes of the ranks: {codes}"


def _fork(rank: int, work: Callable[[int], None], **environment: object) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.environ.update({name: str(value) for name, value in {**environment, "RANK": rank}.items()})
        work(rank)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
