"""The process behind `tidelog.Broker()`: it reads its settings from standard input and ends with its parent.

parent -> child   one line of JSON, {"settings": {...}}; then the pipe stays open: its end is the child's sign to
stop child -> parent   one line of JSON, {"ready": [["127.0.0.1", 9092], ...], "http": [...]} or {"error": "..."}
"""

from __future__ import annotations

import sys


def main() -> int:
    from json import dumps, loads

    from tidelog.broker.server import Server, serve
    from tidelog.broker.settings.configuring import load_broker_config
    from tidelog.errors import TidelogError

    def ready(server: Server) -> None:
        server.end_with_parent(sys.stdin.fileno())
        http = server.http.addresses if server.http is not None else []
        print(dumps({"ready": server.addresses, "http": http}), flush=True)

    try:
        clean = serve(load_broker_config(loads(sys.stdin.readline())["settings"]), ready=ready)
    except TidelogError as error:
        print(dumps({"error": str(error)}), flush=True)
        return 1
    return 0 if clean else 1


if __name__ == "__main__":
    sys.exit(main())
