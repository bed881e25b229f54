"""A node's identity: a key pair and a self-signed certificate, made without anything but the standard library.

`ssl` can use a certificate but not make one. So the key pair and the one signature that a self-signed certificate needs
are computed here, on the curve P-256. The arithmetic is not constant in time; it runs once, at the start, on numbers
that are drawn for this life of the process, and TLS itself signs with OpenSSL.
"""

from __future__ import annotations

import base64
import hashlib
import os
import secrets
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_P = 0xFFFFFFFF00000001000000000000000000000000FFFFFFFFFFFFFFFFFFFFFFFF
_N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_G = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)
_YEAR = 365 * 24 * 3600


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a node is. With a certificate, the id is the first half of its SHA-256; else it is random."""

    id: bytes
    certificate: str = ""  # PEM
    key: str = ""  # PEM

    @staticmethod
    def random() -> Identity:
        return Identity(os.urandom(16))

    @staticmethod
    def generate() -> Identity:
        """Makes a key pair and its certificate."""
        d = secrets.randbelow(_N - 1) + 1
        point = _times(d, _G)
        public = b"\x04" + point[0].to_bytes(32, "big") + point[1].to_bytes(32, "big")
        der = _certificate(d, public)
        raw = _seq(_int(1), _tlv(0x04, d.to_bytes(32, "big")), _tlv(0xA0, _P256), _tlv(0xA1, _bits(public)))
        return Identity(certificate_id(der), _pem("CERTIFICATE", der), _pem("EC PRIVATE KEY", raw))


def certificate_id(der: bytes) -> bytes:
    """The NodeID of a certificate."""
    return hashlib.sha256(der).digest()[:16]


@contextmanager
def as_file(text: str) -> Iterator[str]:
    """A path from which a PEM text can be read while the context lasts: `ssl` loads certificates from files only.
    Where the system has files without a name, nothing is written to a disk."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("laneway")
        try:
            os.write(fd, text.encode())
            yield f"/proc/self/fd/{fd}"
        finally:
            os.close(fd)
        return
    fd, path = tempfile.mkstemp()  # mode 0600
    try:
        os.write(fd, text.encode())
        os.close(fd)
        yield path
    finally:
        os.unlink(path)


# --- P-256: y^2 = x^3 - 3x + b over the field of _P, points in Jacobian coordinates (x/z^2, y/z^3)


def _double(p: tuple[int, int, int]) -> tuple[int, int, int]:
    x, y, z = p
    delta, gamma = z * z % _P, y * y % _P
    beta = x * gamma % _P
    alpha = 3 * (x - delta) * (x + delta) % _P
    x3 = (alpha * alpha - 8 * beta) % _P
    z3 = ((y + z) * (y + z) - gamma - delta) % _P
    return x3, (alpha * (4 * beta - x3) - 8 * gamma * gamma) % _P, z3


def _add(p: tuple[int, int, int], q: tuple[int, int]) -> tuple[int, int, int]:
    x1, y1, z1 = p
    if z1 == 0:
        return q[0], q[1], 1
    zz = z1 * z1 % _P
    h, r = (q[0] * zz - x1) % _P, (q[1] * zz * z1 - y1) % _P
    if h == 0:
        return _double(p) if r == 0 else (1, 1, 0)
    hh = h * h % _P
    hhh, v = h * hh % _P, x1 * hh % _P
    x3 = (r * r - hhh - 2 * v) % _P
    return x3, (r * (v - x3) - y1 * hhh) % _P, z1 * h % _P


def _times(k: int, point: tuple[int, int]) -> tuple[int, int]:
    acc = (1, 1, 0)
    for bit in bin(k)[2:]:
        acc = _double(acc)
        if bit == "1":
            acc = _add(acc, point)
    inverse = pow(acc[2], -1, _P)
    return acc[0] * inverse * inverse % _P, acc[1] * inverse * inverse * inverse % _P


def _sign(d: int, message: bytes) -> bytes:
    e = int.from_bytes(hashlib.sha256(message).digest(), "big")
    while True:
        k = secrets.randbelow(_N - 1) + 1
        r = _times(k, _G)[0] % _N
        s = pow(k, -1, _N) * (e + r * d) % _N
        if r and s:
            return _seq(_int(r), _int(s))


# --- DER


def _tlv(tag: int, body: bytes) -> bytes:
    n = len(body)
    if n < 128:
        return bytes((tag, n)) + body
    size = n.to_bytes((n.bit_length() + 7) // 8, "big")
    return bytes((tag, 128 | len(size))) + size + body


def _seq(*parts: bytes) -> bytes:
    return _tlv(0x30, b"".join(parts))


def _int(n: int) -> bytes:
    return _tlv(0x02, n.to_bytes(n.bit_length() // 8 + 1, "big"))


def _bits(b: bytes, unused: int = 0) -> bytes:
    return _tlv(0x03, bytes((unused,)) + b)


def _oid(dotted: str) -> bytes:
    first, second, *rest = (int(x) for x in dotted.split("."))
    out = bytes((40 * first + second,))
    for n in rest:
        part = bytes((n & 127,))
        while n := n >> 7:
            part = bytes((128 | n & 127,)) + part
        out += part
    return _tlv(0x06, out)


_P256 = _oid("1.2.840.10045.3.1.7")


def _extension(oid: str, value: bytes, critical: bool = False) -> bytes:
    return _seq(_oid(oid), *([b"\x01\x01\xff"] if critical else []), _tlv(0x04, value))


def _time(at: float) -> bytes:
    return _tlv(0x17, time.strftime("%y%m%d%H%M%SZ", time.gmtime(at)).encode())  # good until 2049


def _certificate(d: int, public: bytes) -> bytes:
    algorithm = _seq(_oid("1.2.840.10045.4.3.2"))  # ecdsa-with-SHA256
    name = _seq(_tlv(0x31, _seq(_oid("2.5.4.3"), _tlv(0x0C, b"laneway node"))))
    now = time.time()
    body = _seq(
        _tlv(0xA0, _int(2)),
        _int(secrets.randbits(120) | 1),
        algorithm,
        name,
        _seq(_time(now - 3600), _time(now + 10 * _YEAR)),
        name,
        _seq(_seq(_oid("1.2.840.10045.2.1"), _P256), _bits(public)),
        _tlv(0xA3, _seq(
            _extension("2.5.29.15", _bits(b"\x80", 7), critical=True),  # digital signature
            _extension("2.5.29.37", _seq(_oid("1.3.6.1.5.5.7.3.1"), _oid("1.3.6.1.5.5.7.3.2"))),
        )),
    )  # fmt: skip
    return _seq(body, algorithm, _bits(_sign(d, body)))


def _pem(kind: str, der: bytes) -> str:
    text = base64.b64encode(der).decode()
    lines = "\n".join(text[i : i + 64] for i in range(0, len(text), 64))
    return f"-----BEGIN {kind}-----\n{lines}\n-----END {kind}-----\n"
