"""TLS: the other kind of transport, its handshakes, and the certificates behind them.

Everything above the transport is as without TLS. `send_file` reads the file and sends what it read: bytes that are to
be encrypted cannot go from page cache to socket by themselves.

    states of a handshake    set by
    silent                   `begin`; the client's first record is not whole. It costs its bytes, and no step
    waiting                  each step that needs more from the client; the socket is watched
    working                  a step runs in a thread, for it takes a millisecond and no lock; the socket is not watched
    done                     the transport is handed over, with the user whom the client's certificate names
    ended                    the client broke off, spoke something else, or took too long; one line in the log

Handshakes under way are bounded (`tidelog.max.handshakes`). When one more comes, the oldest that has kept us waiting
for PATIENCE_S is ended, so clients that connect and say nothing keep nobody out for long. Where all of them are on
their way, as after a restart when everybody comes at once, nobody is ended: newcomers wait in the kernel for room.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.broker.access.principals import NameRule, distinguished_name, parse_rules, user_of
from tidelog.broker.tls_stream import RECEIVE_BYTES, RECORD_BYTES, TlsStream
from tidelog.config import BrokerConfig
from tidelog.errors import ConfigError
from tidelog.logger import Logger

if TYPE_CHECKING:
    from tidelog.broker.compute_pool import Beside
    from tidelog.broker.loop import Loop, TimerHandle

SEND_BYTES = 4 * RECORD_BYTES  # encrypted at once; read from a file, or put together from small pieces
HANDSHAKE = b"\x16\x03"  # how every handshake begins
RECORD_HEADER = 5  # bytes: what kind, which version, and in two how long
VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
PATIENCE_S = 1.0
CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class TlsTransport:
    """A non-blocking TLS socket after its handshake; `user` is who its client's certificate says, if anybody.

    `asked_for` is the name that the client looks for in our certificate (SNI), if it has told: what it is told to
    connect to must be that name, or its next look fails.
    """

    __slots__ = ("_descriptor", "_encrypted", "_stream", "asked_for", "user")

    def __init__(self, stream: TlsStream, user: str | None) -> None:
        self._stream = stream
        self._descriptor = stream.fileno()
        self._encrypted = 0  # of the bytes that are to be sent next, so many are with the stream already
        self.user = user
        self.asked_for: str | None = getattr(stream.tls, "asked_for", None)

    def fileno(self) -> int:
        return self._descriptor

    def receive_into(self, view: memoryview) -> int:
        """Record by record, until there is nothing left or no room: the socket may not become readable again."""
        stream, received, room = self._stream, 0, len(view)
        read = stream.read
        while received < room:
            try:
                count = read(room - received, view[received:])
            except ssl.SSLWantReadError:
                try:
                    stream.fill()
                except BlockingIOError:
                    if received:
                        break
                    raise
            except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
                break
            else:
                if not count:
                    break
                received += count
        return received

    def send(self, buffers: Sequence[bytes | bytearray | memoryview], more: bool) -> int:
        if self._encrypted:
            return self._sent()
        whole: bytes | bytearray | memoryview = buffers[0]
        if len(buffers) > 1 and len(whole) < SEND_BYTES:
            whole = b"".join(buffers)
        return self._send(whole)

    def send_file(self, descriptor: int, position: int, count: int) -> int:
        if self._encrypted:
            return self._sent()
        data = os.pread(descriptor, min(count, SEND_BYTES), position)
        return self._send(data) if data else 0

    def _send(self, data: bytes | bytearray | memoryview) -> int:
        if len(data) > SEND_BYTES:
            data = memoryview(data)[:SEND_BYTES]
        self._encrypted = self._stream.tls.write(data)
        return self._sent()

    def _sent(self) -> int:
        """Bytes count as sent when the socket has all of them; until then the same ones are to be sent again."""
        self._stream.flush()
        sent, self._encrypted = self._encrypted, 0
        return sent

    def pending(self) -> bool:
        return self._stream.pending()

    def close(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.tls.unwrap()  # says goodbye, and does not wait for an answer
        with suppress(OSError, ValueError):
            self._stream.flush()
        self._stream.close()


# Handshakes -----------------------------------------------------------------------------------------------------------


class _Handshake:
    __slots__ = ("_context", "done", "hello", "peer", "since_s", "socket", "stream", "timer", "working")

    def __init__(
        self, connected: socket.socket, context: ssl.SSLContext, peer: str, done: Callable[[TlsTransport], None]
    ) -> None:
        self.socket = connected
        self.hello = b""  # what has come of the client's first record
        self.stream: TlsStream | None = None
        self._context = context
        self.peer = peer
        self.done = done
        self.timer: TimerHandle | None = None
        self.working = False
        self.since_s = 0.0  # when it last began to wait for the client

    def step(self) -> None:
        """In a thread."""
        if self.stream is None:
            self.stream = TlsStream(self.socket, self._context, self.hello)
            self.hello = b""
        self.stream.shake()


class Handshakes:
    """Those that are under way. Loop thread only, but for the steps themselves."""

    def __init__(
        self, context: ServerContext, loop: Loop, beside: Beside, config: Callable[[], BrokerConfig], logger: Logger
    ) -> None:
        self.context = context
        self._loop = loop
        self._beside = beside
        self._config = config
        self._logger = logger
        self._under_way: dict[_Handshake, None] = {}

    def __len__(self) -> int:
        return len(self._under_way)

    def make_room(self) -> bool:
        """For one more; False when all that are under way deserve to be finished first."""
        if len(self._under_way) < self._config().int("tidelog.max.handshakes"):
            return True
        before_s = self._loop.time() - PATIENCE_S
        idle = next((one for one in self._under_way if not one.working and one.since_s < before_s), None)
        if idle is not None:
            self._end(idle, "others came, and it had kept us waiting the longest")
        return idle is not None

    def begin(self, connected: socket.socket, sasl: bool, done: Callable[[TlsTransport], None]) -> None:
        """`done` gets the transport. With `sasl` the client logs in, and is asked for no certificate."""
        peer = connected.getpeername()[0] if _is_connected(connected) else "?"
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        context = self.context.for_logins if sasl else self.context.for_certificates
        handshake = _Handshake(connected, context, peer, done)
        handshake.since_s = self._loop.time()
        self._under_way[handshake] = None
        timeout_s = self._config().int("tidelog.handshake.timeout.ms") / 1000
        handshake.timer = self._loop.call_later(timeout_s, lambda: self._end(handshake, "took too long"))
        self._loop.add_reader(connected.fileno(), lambda: self._hear(handshake))

    def _hear(self, handshake: _Handshake) -> None:
        """The client's first record, on the loop's thread: threads and OpenSSL are for those who say something."""
        try:
            came = handshake.socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._end(handshake, _reason(error))
            return
        handshake.hello += came
        if not came:
            self._end(handshake, "it left")
        elif not HANDSHAKE.startswith(handshake.hello[: len(HANDSHAKE)]):
            self._end(handshake, "it does not speak TLS")
        elif _is_whole(handshake.hello):
            self._step(handshake)

    def _step(self, handshake: _Handshake) -> None:
        self._unwatch(handshake)
        handshake.working = True
        self._beside(handshake.step, lambda _none, error: self._stepped(handshake, error))

    def _stepped(self, handshake: _Handshake, error: BaseException | None) -> None:
        handshake.working = False
        handshake.since_s = self._loop.time()
        if handshake not in self._under_way:  # ended meanwhile
            handshake.socket.close()
        elif isinstance(error, ssl.SSLWantReadError):
            self._loop.add_reader(handshake.socket.fileno(), lambda: self._step(handshake))
        elif isinstance(error, ssl.SSLWantWriteError):
            self._loop.add_writer(handshake.socket.fileno(), lambda: self._step(handshake))
        elif error is not None:
            self._end(handshake, _reason(error))
        else:
            assert handshake.stream is not None, "made by the first step"
            self._finish(handshake, handshake.stream)

    def _finish(self, handshake: _Handshake, stream: TlsStream) -> None:
        user, named = self.context.user(stream.tls)
        if named and user is None:
            self._end(handshake, "no rule of ssl.principal.mapping.rules fits the name in its certificate")
            return
        self._forget(handshake)
        handshake.done(TlsTransport(stream, user))

    def _end(self, handshake: _Handshake, why: str) -> None:
        self._logger.info("handshake failed", peer=handshake.peer, why=why)
        self._forget(handshake)
        if not handshake.working:  # else the thread has it, and it is closed when that is done
            self._unwatch(handshake)
            handshake.socket.close()

    def end_all(self) -> None:
        for handshake in list(self._under_way):
            self._end(handshake, "the broker stops")

    def _forget(self, handshake: _Handshake) -> None:
        self._under_way.pop(handshake, None)
        if handshake.timer is not None:
            handshake.timer.cancel()

    def _unwatch(self, handshake: _Handshake) -> None:
        self._loop.remove_reader(handshake.socket.fileno())
        self._loop.remove_writer(handshake.socket.fileno())


def _is_whole(hello: bytes) -> bool:
    """Whether the first record of a handshake is there, or will never be: then OpenSSL says why."""
    size = int.from_bytes(hello[RECORD_HEADER - 2 : RECORD_HEADER], "big")
    return len(hello) >= RECORD_HEADER and (len(hello) >= RECORD_HEADER + size or size > RECORD_BYTES)


def _is_connected(connected: socket.socket) -> bool:
    try:
        connected.getpeername()
    except OSError:
        return False
    return True


def _reason(error: BaseException) -> str:
    reason = getattr(error, "reason", None)
    return str(reason).lower().replace("_", " ") if reason else str(error) or type(error).__name__


# Certificates ---------------------------------------------------------------------------------------------------------


class ServerContext:
    """What handshakes are made with; reading the certificates again makes a new one."""

    def __init__(self, config: BrokerConfig) -> None:
        """ConfigError when a file cannot be read or its content is not what it should be."""
        client_auth = CLIENT_AUTH[config.text("ssl.client.auth")]
        self.for_certificates = _context(config, client_auth)
        self.for_logins = _context(config, ssl.CERT_NONE)
        self._rules: list[NameRule] = parse_rules(config.text("ssl.principal.mapping.rules"))

    def user(self, connected: ssl.SSLObject) -> tuple[str | None, bool]:
        """The user whom a client's certificate names, and whether there is a certificate at all."""
        certificate = connected.getpeercert()
        if not certificate:
            return None, False
        subject = certificate.get("subject", ())
        return user_of(distinguished_name(subject), self._rules), True  # type: ignore[arg-type]


def server_context(config: BrokerConfig) -> ServerContext:
    return ServerContext(config)


def _context(config: BrokerConfig, client_auth: ssl.VerifyMode) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    versions = [VERSIONS[name] for name in config.texts("ssl.enabled.protocols")] or list(VERSIONS.values())
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.sni_callback = _remember_name
    suites = config.texts("ssl.cipher.suites")
    try:
        if suites:
            context.set_ciphers(":".join(suites))
    except ssl.SSLError as error:
        raise ConfigError(
            f"ssl.cipher.suites={','.join(suites)} has nothing that OpenSSL knows; `openssl ciphers` lists what it does"
        ) from error
    _load_certificate(context, config)
    if client_auth != ssl.CERT_NONE:
        _load_authorities(context, config)
    context.verify_mode = client_auth
    return context


def _remember_name(connected: ssl.SSLObject, name: str, _context: ssl.SSLContext) -> None:
    connected.asked_for = name  # type: ignore[attr-defined]


def _load_certificate(context: ssl.SSLContext, config: BrokerConfig) -> None:
    password = config.optional_text("ssl.key.password") or ""  # without one OpenSSL would ask on the terminal
    location = config.optional_text("ssl.keystore.location")
    if location is not None:
        where, content = f"{location} (ssl.keystore.location)", _read(location, "ssl.keystore.location")
    else:
        where = "what ssl.keystore.key and ssl.keystore.certificate.chain hold"
        content = "\n".join(_pem(config.text(f"ssl.keystore.{part}")) for part in ("key", "certificate.chain")).encode()
    # OpenSSL reads files only; this one is in memory and has no name.
    descriptor = os.memfd_create("tidelog-key", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, content + b"\n")
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password=password)
    except (ssl.SSLError, ValueError) as error:
        from tidelog.broker.pem import fault_of_keystore

        cause = error if isinstance(error, ssl.SSLError) else ssl.SSLError(str(error))
        raise _unusable(where, fault_of_keystore(content, cause, password=bool(password))) from error
    finally:
        os.close(descriptor)


def _load_authorities(context: ssl.SSLContext, config: BrokerConfig) -> None:
    location, inline = config.optional_text("ssl.truststore.location"), config.values["ssl.truststore.certificates"]
    if location is None and not inline:
        raise ConfigError(
            f"ssl.client.auth={config.text('ssl.client.auth')} needs to know whose certificates to take; set"
            " ssl.truststore.location to a PEM file with the authorities"
        )
    where = "what ssl.truststore.certificates holds"
    content = _pem(str(inline)).encode()
    if location is not None:
        where, content = f"{location} (ssl.truststore.location)", _read(location, "ssl.truststore.location")
    try:
        context.load_verify_locations(cadata=content.decode())
    except (ssl.SSLError, ValueError) as error:
        from tidelog.broker.pem import fault_of_truststore

        raise _unusable(where, fault_of_truststore(content)) from error


def _read(path: str, setting: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise _unusable(f"{path} ({setting})", f"{reason}; give a PEM file that the broker's user can read") from error


def _unusable(where: str, why: str) -> ConfigError:
    return ConfigError(f"the certificates of the broker cannot be used: {where}: {why}")


def _pem(text: str) -> str:
    """PEM that came through a settings file in one line, as Kafka's users write it."""
    return text.replace("\\n", "\n")
