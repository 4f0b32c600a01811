"""Asks a server on this machine for its health, for orchestrators: `python -m headway.serving.probe [PORT]`. Exit code
0 if it is well. The key is the one of the environment (HEADWAY_KEY)."""

from __future__ import annotations

import os
import sys
from http.client import HTTPConnection


def main(port: int) -> int:
    key = os.environ.get("HEADWAY_KEY", "")
    connection = HTTPConnection("127.0.0.1", port, timeout=4)
    try:
        connection.request("GET", "/health", headers={"Authorization": f"Bearer {key}"} if key else {})
        response = connection.getresponse()
        print(response.read(10_000).decode(errors="replace"))
        return 0 if response.status == 200 else 1
    except OSError as error:
        print(f"127.0.0.1:{port}: {error}")
        return 1
    finally:
        connection.close()


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 8000))
