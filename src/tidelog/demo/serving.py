"""The HTTP server of the demo, a process of its own: all routes that there are, and the page.

parent -> child    sockets, and one line of JSON on standard input, {"bootstrap": ADDRESS, "sockets": [FD, ...]};
                   then the pipe stays open: its end is the child's sign to stop
"""

from __future__ import annotations

import json
import os
import sys


def main() -> None:
    from tidelog.demo import page
    from tidelog.gateway.gateway import Gateway
    from tidelog.gateway.routes import ROUTES
    from tidelog.gateway.server import Settings, inherited, serve
    from tidelog.logger import Logger

    told = json.loads(sys.stdin.readline())
    gateway = Gateway(told["bootstrap"], (*ROUTES, *page.ROUTES))
    logger = Logger(level="WARNING")
    serve(gateway, inherited(told["sockets"]), logger, Settings(parent=sys.stdin.fileno()))
    # Threads that wait for a broker would hold the end up, and there is nothing left to tell.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
