"""An SMTP server on a socket, enough of RFC 5321 for `smtplib`: it takes mails and remembers them."""

from __future__ import annotations

import socketserver
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes
from email.message import Message
from threading import Thread


class MailServer(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Session)
        self.mails: list[Message] = []

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class _Session(socketserver.StreamRequestHandler):
    server: MailServer

    def handle(self) -> None:
        self._say("220 mail")
        for line in self.rfile:
            word = line.split(None, 1)[0].upper() if line.strip() else b""
            if word == b"DATA":
                self._say("354 go on")
                lines = []
                for one in self.rfile:
                    if one == b".\r\n":
                        break
                    lines.append(one.removeprefix(b"."))
                self.server.mails.append(message_from_bytes(b"".join(lines)))
            self._say("221 bye" if word == b"QUIT" else "250 fine")
            if word == b"QUIT":
                return

    def _say(self, line: str) -> None:
        self.wfile.write(f"{line}\r\n".encode())


@contextmanager
def mail_server() -> Iterator[MailServer]:
    with MailServer() as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()
