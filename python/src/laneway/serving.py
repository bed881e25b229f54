"""What a frontend and a worker say to each other: docs/serving.md."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Final

from .wire import MAX_END_TRAILER, cut

VERSION: Final = 1
HEAD: Final = 1
EVENT: Final = 2
DELTA: Final = 3
BODY: Final = 4
LAST: Final = 5
MAX_REFERENCE: Final = 4096
_DEFAULT_HEADERS: Final = (("content-type", "text/event-stream"),)
_KINDS: Final = tuple(bytes((k,)) for k in range(6))


class MalformedError(ValueError):
    """A payload that is no request of docs/serving.md."""


@dataclass(slots=True)
class RequestHead:
    """A request: the head that the frontend has made, and the client's body, byte for byte."""

    id: str
    method: str
    path: str
    model: str
    stream: bool = False
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    model_at: tuple[int, int] = (0, 0)  # place and length of model's value in the body

    def encode(self) -> bytes:
        return b"".join((
            bytes((VERSION, self.stream)), _str16(self.id), _str8(self.method), _str16(self.path), _str16(self.model),
            struct.pack(">II", *self.model_at), encode_headers(self.headers.items()), self.body,
        ))  # fmt: skip

    @staticmethod
    def decode(raw: bytes) -> RequestHead:
        if raw[:1] != bytes((VERSION,)):
            got = "of a release before version 1" if raw[:1] == b"{" else f"of version {raw[0] if raw else 'none'}"
            raise MalformedError(f"the request is {got}, this worker reads {VERSION}")
        r = _Reader(raw, 1)
        flags = r.number(1)
        if flags > 1:
            raise MalformedError(f"the request has the unknown flags {flags:#x}")
        ident, method, path, model = r.text(2), r.text(1), r.text(2), r.text(2)
        at, length = r.number(4), r.number(4)
        headers = {}
        for _ in range(r.number(1)):
            name, value = r.text(1), r.text(2)
            if not name or name != name.lower():
                raise MalformedError(f"the header name {name!r} is empty or not in lower case")
            headers[name] = value
        body = raw[r.at :]
        if at + length > len(body):
            raise MalformedError("the place of model is outside the body")
        return RequestHead(ident, method, path, model, flags == 1, headers, body, (at, length))


class _Reader:
    def __init__(self, raw: bytes, at: int = 0) -> None:
        self.raw, self.at = raw, at

    def take(self, size: int) -> bytes:
        part = self.raw[self.at : self.at + size]
        if len(part) != size:
            raise MalformedError("the request is cut off")
        self.at += size
        return part

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def text(self, size: int) -> str:
        try:
            return self.take(self.number(size)).decode()
        except UnicodeDecodeError as err:
            raise MalformedError("the request's head is not UTF-8") from err


def _str8(text: str) -> bytes:
    raw = text.encode()
    if len(raw) > 255:
        raise ValueError(f"{text[:40]!r}... has {len(raw)} bytes, at most 255 are allowed")
    return bytes((len(raw),)) + raw


def _str16(text: str) -> bytes:
    raw = text.encode()
    if len(raw) > 65535:
        raise ValueError(f"{text[:40]!r}... has {len(raw)} bytes, at most 65,535 are allowed")
    return len(raw).to_bytes(2, "big") + raw


def encode_headers(headers: object) -> bytes:
    pairs = [(str(k).lower(), str(v)) for k, v in headers]  # type: ignore[attr-defined]
    if len(pairs) > 255:
        raise ValueError("at most 255 headers are allowed")
    return bytes((len(pairs),)) + b"".join(_str8(k) + _str16(v) for k, v in pairs)


def head_record(status: int, headers: object, first: bytes) -> bytes:
    """The head of an answer, with its first record, which travels in it."""
    if not 200 <= status <= 599:
        raise ValueError(f"status {status} is not 200 to 599")
    return bytes((HEAD,)) + status.to_bytes(2, "big") + encode_headers(headers) + first


def _uvarint(n: int) -> bytes:
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def delta_record(before: bytes, event: bytes) -> bytes:
    """A record of an event: its difference from the one before, where that is not longer."""
    prefix = _common(before, event)
    most = min(len(before), len(event)) - prefix
    suffix = _common(before[::-1][:most], event[::-1][:most]) if most else 0
    delta = b"\x03" + _uvarint(prefix) + _uvarint(suffix) + event[prefix : len(event) - suffix]
    return delta if len(delta) <= len(event) + 1 else b"\x02" + event


def _common(a: bytes, b: bytes) -> int:
    """How many bytes at the beginning are the same: the first bit that differs says it."""
    n = min(len(a), len(b))
    differs = int.from_bytes(a[:n], "big") ^ int.from_bytes(b[:n], "big")
    return n - (differs.bit_length() + 7) // 8


def trailer(
    usage: tuple[int, int] | None = None,
    finish: list[str] | None = None,
    answer: tuple[int, dict[str, str], bytes] | None = None,
) -> bytes:
    """The trailer of an end: usage (prompt, completion), finish reasons, and an engine's own answer."""
    out = b""
    if usage is not None:
        out += b"\x01" + (16).to_bytes(2, "big") + struct.pack(">QQ", *usage)
    if finish:
        value = b"".join(_str8(cut(f, 64).decode()) for f in finish[:128])
        out += b"\x02" + len(value).to_bytes(2, "big") + value
    if answer is not None:
        status, headers, body = answer
        room = MAX_END_TRAILER - len(out) - 3
        for head, rest in ((headers, body), (headers, b""), ({}, b"")):
            value = status.to_bytes(2, "big") + encode_headers(head.items()) + rest
            if len(value) <= room:
                return out + b"\x03" + len(value).to_bytes(2, "big") + value
    return out


class Encoder:
    """Makes the records of one answer: the head travels with what comes first, and with delta an event goes as its
    difference from the one before, where that is not longer. Without it every event goes whole."""

    __slots__ = ("_before", "_delta", "_head")

    def __init__(self, delta: bool = False) -> None:
        self._delta = delta
        self._head: bytes | None = head_record(200, _DEFAULT_HEADERS, b"")
        self._before = b""

    @property
    def begun(self) -> bool:
        return self._head is None

    def head(self, status: int, headers: dict[str, str]) -> None:
        """Sets status and headers, before anything is put."""
        if self._head is None:
            raise ValueError("the head has gone out")
        self._head = head_record(status, headers.items(), b"")

    def record(self, kind: int, data: bytes) -> bytes:
        """The record of an event or a piece of a body. If it does not fit the window it is made again: see taken."""
        if self._head is not None:
            return self._head + bytes((kind,)) + data
        if kind == EVENT and self._before:
            return delta_record(self._before, data)
        return _KINDS[kind] + data

    def taken(self, kind: int, data: bytes) -> None:
        """Notes that a record was taken: it is the reference of the next one."""
        self._head = None
        if self._delta and kind == EVENT:
            self._before = data if len(data) <= MAX_REFERENCE else b""
