"""What is wrong with a PEM file that OpenSSL refuses, in words: it says `PEM lib` of nearly everything. Pure.

The answers are a fact and what to do about it. No byte of the file is ever in them: it may hold a key.
"""

from __future__ import annotations

import ssl

CERTIFICATE = b"-----BEGIN CERTIFICATE-----"
KEY_ENDS = b"PRIVATE KEY-----"
ENCRYPTED = (b"-----BEGIN ENCRYPTED PRIVATE KEY-----", b"Proc-Type: 4,ENCRYPTED")
JAVA_STORE = b"\xfe\xed\xfe\xed"
DER = b"\x30"  # how a certificate or a PKCS#12 store begins that is not text
MISMATCH = "KEY_VALUES_MISMATCH"


def fault_of_keystore(content: bytes, error: ssl.SSLError, *, password: bool) -> str:
    """Of what should hold a key and its certificate; `password` says whether one was given for the key."""
    other = _fault_of_kind(content)
    if other is not None:
        return other
    if CERTIFICATE not in content:
        return "it does not have a certificate; it must hold the private key and the certificate, both as PEM"
    if KEY_ENDS not in content:
        return "it does not have a private key; put the key and the certificate into one file, both as PEM"
    if error.reason == MISMATCH:
        return "its certificate is of another key; use the key that the certificate was made for"
    if any(mark in content for mark in ENCRYPTED):
        said = "is not opened by ssl.key.password" if password else "is encrypted, and ssl.key.password is not set"
        return f"its private key {said}; set ssl.key.password to the right one, or see whether the file is whole"
    return "its PEM is cut off or damaged; see whether `openssl x509 -in FILE` and `openssl pkey -in FILE` can read it"


def fault_of_truststore(content: bytes) -> str:
    """Of what should hold the certificates of authorities."""
    other = _fault_of_kind(content)
    if other is not None:
        return other
    if CERTIFICATE not in content:
        return "it does not have a certificate; it must hold those of the authorities, as PEM"
    return "its PEM is cut off or damaged; see whether `openssl x509 -in FILE` can read it"


def _fault_of_kind(content: bytes) -> str | None:
    if not content.strip():
        return "it is empty; write the PEM into it"
    if content.startswith(JAVA_STORE):
        return "it is a key store of Java's; make PEM of it: keytool -importkeystore, then openssl pkcs12 -nodes"
    if content.startswith(DER):
        return "it is not text, perhaps PKCS#12; make PEM of it: openssl pkcs12 -in FILE -nodes"
    return None
