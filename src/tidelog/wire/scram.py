"""SCRAM (RFC 5802, RFC 7677): the messages of both sides, and the keys that a password becomes. No IO and no chance.

    client first    n,,n=USER,r=NONCE
    server first    r=NONCE+MORE,s=SALT,i=ITERATIONS
    client final    c=biws,r=NONCE+MORE,p=PROOF
    server final    v=SIGNATURE

What is kept of a password is a salt, a count of iterations and two keys (`Credential`): enough to check a proof, and
not enough to make one. The same keys check a password that came as it is (PLAIN). Names and passwords are not prepared
by SASLprep, as Kafka's are not; channel binding is not offered. Who gives nonces and salts takes them from the
operating system's chance.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from typing import NamedTuple

from tidelog.errors import PeerError

SHA_256, SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
HASHES = {SHA_256: "sha256", SHA_512: "sha512"}
MECHANISM_TYPES = {1: SHA_256, 2: SHA_512}  # as AlterUserScramCredentials numbers them
TYPES = {name: number for number, name in MECHANISM_TYPES.items()}
MIN_ITERATIONS = 4096
MAX_ITERATIONS = 16384  # Kafka takes no more
MOST_ITERATIONS = 1_000_000  # that a client does for a server: about a second; a hostile one could ask for hours
SALT_BYTES = 16
NO_BINDING = b"n,,"
MESSAGE_BYTES_MAX = 4096


class ScramFault(PeerError):
    """A message that breaks the protocol, or a proof that is wrong."""


class Credential(NamedTuple):
    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return f"Credential(iterations={self.iterations})"


class ClientFirst(NamedTuple):
    user: str
    nonce: str
    bare: bytes


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Milliseconds of work, without the interpreter lock: not for the loop."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)


def credential(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> Credential:
    stored_key = _hash(mechanism, _hmac(mechanism, salted, b"Client Key"))
    return Credential(salt, iterations, stored_key, _hmac(mechanism, salted, b"Server Key"))


def is_password(mechanism: str, kept: Credential, password: str) -> bool:
    """As long for a wrong password as for the right one."""
    salted = salted_password(mechanism, password, kept.salt, kept.iterations)
    return hmac.compare_digest(credential(mechanism, salted, kept.salt, kept.iterations).stored_key, kept.stored_key)


# The server's side ----------------------------------------------------------------------------------------------------


def read_client_first(message: bytes) -> ClientFirst:
    if not message.startswith(NO_BINDING):
        raise ScramFault("the first message does not begin with 'n,,'; channel binding and other identities are not")
    bare = message[len(NO_BINDING) :]
    fields = _fields(bare)
    if "m" in fields or not fields.get("n") or not fields.get("r"):
        raise ScramFault("the first message needs a user and a nonce, and no mandatory extensions")
    return ClientFirst(_unescape(fields["n"]), fields["r"], bare)


class ServerExchange:
    """One login, from the client's first message on. `nonce` is the server's part, fresh for each."""

    def __init__(self, mechanism: str, first: ClientFirst, kept: Credential, nonce: str) -> None:
        self._mechanism = mechanism
        self._kept = kept
        self._nonce = first.nonce + nonce
        self.reply = f"r={self._nonce},s={b64encode(kept.salt).decode()},i={kept.iterations}".encode()
        self._exchanged = first.bare + b"," + self.reply

    def finish(self, message: bytes) -> bytes:
        """The server's last message; ScramFault when the client does not know the password."""
        without_proof, comma, _ = message.rpartition(b",p=")
        fields = _fields(message)
        binding = _decoded(fields.get("c", ""))
        if not comma or not hmac.compare_digest(fields.get("r", "").encode(), self._nonce.encode()):
            raise ScramFault("the last message has no proof, or another nonce")
        if binding != NO_BINDING:
            raise ScramFault("the last message has another channel binding than the first")
        exchanged = self._exchanged + b"," + without_proof
        proof = _decoded(fields.get("p", ""))
        signature = _hmac(self._mechanism, self._kept.stored_key, exchanged)
        if len(proof) != len(signature):
            raise ScramFault("the proof is wrong")
        if not hmac.compare_digest(_hash(self._mechanism, _xor(proof, signature)), self._kept.stored_key):
            raise ScramFault("the proof is wrong")
        return b"v=" + b64encode(_hmac(self._mechanism, self._kept.server_key, exchanged))


# The client's side ----------------------------------------------------------------------------------------------------


class ClientExchange:
    """One login. `nonce` is the client's part, fresh for each."""

    def __init__(self, mechanism: str, user: str, password: str, nonce: str) -> None:
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce
        self._bare = f"n={_escape(user)},r={nonce}".encode()
        self._signature = b""

    def first(self) -> bytes:
        return NO_BINDING + self._bare

    def final(self, server_first: bytes) -> bytes:
        fields = _fields(server_first)
        nonce, iterations = fields.get("r", ""), fields.get("i", "")
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise ScramFault("the server's nonce does not go on from ours")
        if not (iterations.isascii() and iterations.isdigit()) or int(iterations) < MIN_ITERATIONS:
            raise ScramFault(f"the server asks for {iterations or 'no'} iterations; at least {MIN_ITERATIONS} are safe")
        if len(iterations) > len(str(MOST_ITERATIONS)) or int(iterations) > MOST_ITERATIONS:
            raise ScramFault(f"the server asks for more than {MOST_ITERATIONS} iterations; is it the right one?")
        salted = salted_password(self._mechanism, self._password, _decoded(fields.get("s", "")), int(iterations))
        without_proof = f"c={b64encode(NO_BINDING).decode()},r={nonce}".encode()
        exchanged = b",".join((self._bare, server_first, without_proof))
        client_key = _hmac(self._mechanism, salted, b"Client Key")
        stored_key = _hash(self._mechanism, client_key)
        proof = _xor(client_key, _hmac(self._mechanism, stored_key, exchanged))
        self._signature = _hmac(self._mechanism, _hmac(self._mechanism, salted, b"Server Key"), exchanged)
        return without_proof + b",p=" + b64encode(proof)

    def check(self, server_final: bytes) -> None:
        """The server knows the password's keys too; else it is not the one that we meant."""
        signature = _decoded(_fields(server_final).get("v", ""))
        if not self._signature or not hmac.compare_digest(signature, self._signature):
            raise ScramFault("the server did not prove that it knows the password; is it the right one?")


def _fields(message: bytes) -> dict[str, str]:
    if len(message) > MESSAGE_BYTES_MAX:
        raise ScramFault(f"a message of {len(message)} bytes; at most {MESSAGE_BYTES_MAX}")
    fields: dict[str, str] = {}
    try:
        parts = message.decode().split(",")
    except UnicodeDecodeError as error:
        raise ScramFault("a message is not UTF-8") from error
    for part in parts:
        name, equals, value = part.partition("=")
        if not equals or len(name) != 1 or name in fields:
            raise ScramFault("a message is not a list of NAME=VALUE, each once")
        fields[name] = value
    return fields


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (Base64Error, ValueError) as error:
        raise ScramFault("a message has a value that is not base64") from error


def _escape(user: str) -> str:
    return user.replace("=", "=3D").replace(",", "=2C")


def _unescape(user: str) -> str:
    if user.replace("=2C", "").replace("=3D", "").count("="):
        raise ScramFault("a user's name has '=' that stands for nothing")
    return user.replace("=2C", ",").replace("=3D", "=")


def _hmac(mechanism: str, key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, HASHES[mechanism])


def _hash(mechanism: str, message: bytes) -> bytes:
    return hashlib.new(HASHES[mechanism], message).digest()


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))
