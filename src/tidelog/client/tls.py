"""The other transport: TLS, with deadlines. Everything above it is as without."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence

from tidelog.client.address import Address
from tidelog.client.transport import Buffer, Dial, PlainTransport, Transport, left

SEND_BYTES = 256 << 10  # small pieces are put together up to here: each send is a record of its own


class TlsTransport(PlainTransport):
    """A TLS socket. Deadlines are monotonic; a missed one is a TimeoutError, the stream's end an EOFError."""

    _socket: ssl.SSLSocket

    def send(self, chunks: Sequence[Buffer], deadline: float) -> None:
        together = bytearray()
        for chunk in chunks:
            if len(together) + len(chunk) > SEND_BYTES:
                self._send(together, deadline)
                together = bytearray()
            if len(chunk) > SEND_BYTES:
                self._send(chunk, deadline)
            else:
                together += chunk
        self._send(together, deadline)

    def _send(self, data: Buffer, deadline: float) -> None:
        if len(data):
            self._socket.settimeout(left(deadline))
            self._socket.sendall(data)

    def pending(self) -> bool:
        return self._socket.pending() > 0


def tls(context: ssl.SSLContext) -> Dial:
    def dial(address: Address, timeout_s: float) -> Transport:
        connected = socket.create_connection((address.host, address.port), timeout=timeout_s)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            return TlsTransport(context.wrap_socket(connected, server_hostname=address.host))
        except ssl.SSLCertVerificationError as error:
            connected.close()
            why = f"{error.verify_message}; see ssl.truststore.location (--command-config)"
            raise ConnectionError(0, f"the broker's certificate is not trusted: {why}") from error
        except ssl.SSLError as error:
            connected.close()
            reason = (error.reason or str(error)).lower().replace("_", " ")
            raise ConnectionError(0, f"no TLS: {reason}; does this port speak it?") from error
        except BaseException:
            connected.close()
            raise

    return dial
