"""A broker in this process with several listeners, and a client that can say anything to it."""

from __future__ import annotations

import os
import socket
import ssl
import struct
import threading
from pathlib import Path
from typing import Any

from tidelog.broker.server import Server
from tidelog.broker.settings.configuring import load_broker_config
from tidelog.logger import Logger
from tidelog.wire.api import response_class
from tidelog.wire.frame import decode_response, encode_request
from tidelog.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from tidelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from tidelog.wire.messages.sasl_handshake import SaslHandshakeRequest
from tidelog.wire.scram import MIN_ITERATIONS, SHA_256, TYPES, ClientExchange, salted_password

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
PASSWORD = "secret of alice"
ADMIN, ADMIN_PASSWORD = "admin", "secret of admin"


class AccessBroker:
    def __init__(self, data: Path, listeners: str, settings: dict[str, Any]) -> None:
        self.data = data
        self.settings = {
            "listeners": listeners,
            "log.dirs": str(data),
            "tidelog.log.level": "ERROR",
            "connection.failed.authentication.delay.ms": 10,
            **settings,
        }
        self.log = data.parent / "log"
        self.server: Server
        self._thread: threading.Thread | None = None

    def start(self) -> AccessBroker:
        config = load_broker_config(self.settings)
        self._stream = self.log.open("a")
        logger = Logger(self._stream, level=config.text("tidelog.log.level"))
        self.server = Server(config, logger)
        self.server.start()
        self._thread = threading.Thread(target=self.server.run, daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        if self._thread is not None:
            self.server.stop_soon()
            self._thread.join(180)
            assert not self._thread.is_alive(), "the broker does not stop"
            self._thread = None
            self._stream.close()

    def said(self) -> str:
        self._stream.flush()
        return self.log.read_text()

    def port(self, name: str) -> int:
        names = [endpoint.name for endpoint in self.server._config.endpoints()]
        own = [address for address in self.server.addresses if address[0] != "::1"]
        return own[names.index(name)][1]

    def client(self, name: str, context: ssl.SSLContext | None = None) -> Client:
        return Client(self.port(name), context)

    def add_user(self, user: str, password: str, *, by: Client, mechanism: str = SHA_256) -> None:
        salt = os.urandom(16)
        salted = salted_password(mechanism, password, salt, MIN_ITERATIONS)
        upsertion = ScramCredentialUpsertion(
            name=user, mechanism=TYPES[mechanism], iterations=MIN_ITERATIONS, salt=salt, salted_password=salted
        )
        (result,) = by.call(AlterUserScramCredentialsRequest(upsertions=[upsertion]), 0).results
        assert result.error_code == 0, result


class Refused(Exception):
    """The broker closed the connection."""


class Client:
    def __init__(self, port: int, context: ssl.SSLContext | None = None, timeout_s: float = 180) -> None:
        self.socket: socket.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_hostname="localhost")

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, request: Any, version: int, correlation_id: int = 1, client_id: str = "raw") -> None:
        chunks = encode_request(request, version, correlation_id, client_id)
        try:
            self.socket.sendall(b"".join(bytes(chunk) for chunk in chunks))
        except (ConnectionError, ssl.SSLError) as error:
            raise Refused from error

    def receive(self, api_key: int, version: int) -> Any:
        (size,) = struct.unpack(">i", self.exactly(4))
        return decode_response(response_class(api_key), version, memoryview(self.exactly(size)))[1]

    def call(self, request: Any, version: int, client_id: str = "raw") -> Any:
        self.send(request, version, client_id=client_id)
        return self.receive(type(request).SCHEMA.api_key, version)

    def exactly(self, count: int) -> bytes:
        parts = b""
        while len(parts) < count:
            try:
                part = self.socket.recv(count - len(parts))
            except (ConnectionError, ssl.SSLError) as error:
                raise Refused from error
            if not part:
                raise Refused
            parts += part
        return parts

    def login(self, user: str, password: str, mechanism: str = SHA_256, version: int = 2) -> Any:
        """The last answer; its error code says whether it went well."""
        shaken = self.call(SaslHandshakeRequest(mechanism=mechanism), 1)
        if shaken.error_code:
            return shaken
        if mechanism == "PLAIN":
            return self.call(SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{password}".encode()), version)
        exchange = ClientExchange(mechanism, user, password, os.urandom(16).hex())
        answer = self.call(SaslAuthenticateRequest(auth_bytes=exchange.first()), version)
        if answer.error_code:
            return answer
        answer = self.call(SaslAuthenticateRequest(auth_bytes=exchange.final(answer.auth_bytes)), version)
        if not answer.error_code:
            exchange.check(answer.auth_bytes)
        return answer
