"""The records of docs/wire.md: encoders and decoders, and nothing that knows a connection."""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

VERSION_MIN: Final = 1
VERSION_MAX: Final = 1
MAGIC: Final = 0x4C414E45

HEADER_SIZE: Final = 8
MAX_DATA: Final = 64 << 10  # a DATA or DATA_MORE, header included
MAX_END: Final = 20 << 10
MAX_END_TEXT: Final = 1 << 10
MAX_END_TRAILER: Final = 16 << 10
MAX_CONTROL: Final = 2 << 10
MAX_NUMBER: Final = (1 << 62) - 1
MAX_INDEX: Final = (1 << 24) - 1

MAX_LANES: Final = 16
MIN_LOG: Final = 256 << 10
MAX_LOG: Final = 64 << 20
MIN_PING_MS: Final = 100
MAX_PING_MS: Final = 3_600_000
MAX_RESUME_MS: Final = 90_000
MIN_WINDOW: Final = 4 << 10
MAX_WINDOW: Final = 16 << 20
MAX_CLAIMS: Final = 1024

HELLO: Final = 0x01
PING: Final = 0x02
PONG: Final = 0x03
GOAWAY: Final = 0x04
ACK: Final = 0x05
OPEN: Final = 0x10
DATA: Final = 0x11
DATA_MORE: Final = 0x12
END: Final = 0x13
CLAIM: Final = 0x14
CONSUMED: Final = 0x20
STOP: Final = 0x21
KILL: Final = 0x22
GRANT: Final = 0x23

_OF_CONNECTION: Final = frozenset((HELLO, PING, PONG, GOAWAY, ACK))
_OF_WORKER: Final = _OF_CONNECTION | {OPEN, DATA, DATA_MORE, END, CLAIM}
_OF_FRONTEND: Final = _OF_CONNECTION | {CONSUMED, STOP, KILL, GRANT}
_OF_NO_STREAM: Final = _OF_CONNECTION | {CLAIM, GRANT}
_SKIPPED: Final = 0xC0
_SKIPPED_COUNTED: Final = 0xE0

HEADER: Final = struct.Struct(">II")  # kind << 24 | length, slot
_PAIR: Final = struct.Struct(">QQ")
_NUMBER: Final = struct.Struct(">Q")
_KILL: Final = struct.Struct(">QB")
_END: Final = struct.Struct(">QBBHQQH")
_HELLO: Final = struct.Struct(">IHHQ16sQHHIQQIIIIII16s16sQ")
_TERMS: Final = struct.Struct(">HH16s16sQIQHHIQQ")
_OPEN_TERMS: Final = struct.Struct(">HH16s16sQQ")

HELLO_SIZE: Final = _HELLO.size
TERMS_SIZE: Final = _TERMS.size
OPEN_TERMS_SIZE: Final = _OPEN_TERMS.size


class WireError(ValueError):
    """What is wrong with a record or with terms."""


class TermsVersionError(WireError):
    """Terms of a version that is not read here."""


class EndType(IntEnum):
    """How a stream ended."""

    COMPLETE = 1
    FAILED = 2
    STOPPED = 3
    KILLED = 4
    REFUSED = 5
    DEADLINE = 6
    LOST = 7
    PROTOCOL = 8


class Code(IntEnum):
    """Why a stream failed or was refused."""

    NONE = 0
    INTERNAL = 1
    VALIDATION = 2  # the request is at fault
    NOT_FOUND = 3  # what it names does not exist
    BUSY = 16
    DRAINING = 17
    NO_WORKER = 18
    UNSUPPORTED = 19
    BAD_REQUEST = 20
    TOO_LARGE = 21


class Away(IntEnum):
    """Codes of GOAWAY."""

    DRAINING = 0
    VERSION = 1
    UNKNOWN_LINK = 2
    LIMIT = 3
    PROTOCOL = 4
    IDENTITY = 5
    CLOSING = 6


class GrantCode(IntEnum):
    """Codes of GRANT."""

    GRANTED = 0
    UNKNOWN = 1
    BUSY = 2
    CLOSING = 3


def counted(kind: int) -> bool:
    """Says whether records of this kind are part of the lane's byte string."""
    return OPEN <= kind < _SKIPPED or kind >= _SKIPPED_COUNTED


def skipped(kind: int) -> bool:
    """Says whether a receiver skips records of this kind unread."""
    return kind >= _SKIPPED


def check_header(kind: int, length: int, slot: int, *, from_worker: bool = False) -> None:
    """Raises WireError for a header that the peer may not send. It is called before the body is waited for."""
    if kind >= _SKIPPED:
        return
    if kind not in _OF_WORKER and kind not in _OF_FRONTEND:
        raise WireError(f"kind 0x{kind:02x} is not one of this version")
    if kind not in (_OF_WORKER if from_worker else _OF_FRONTEND):
        raise WireError(f"kind 0x{kind:02x} came from the wrong side")
    most = MAX_DATA - HEADER_SIZE if kind in (DATA, DATA_MORE) else MAX_END if kind == END else MAX_CONTROL
    if length > most:
        raise WireError(f"kind 0x{kind:02x} has {length} bytes, at most {most} are allowed")
    if (kind in _OF_NO_STREAM) != (slot == 0) or (slot != 0 and slot >> 8 == 0):
        raise WireError(f"kind 0x{kind:02x} has slot {slot >> 8}.{slot & 255}, which it cannot have")


def header(kind: int, length: int, slot: int = 0) -> bytes:
    return HEADER.pack(kind << 24 | length, slot)


def _exact(kind: int, body: bytes, size: int) -> None:
    if len(body) != size:
        raise WireError(f"kind 0x{kind:02x} has {len(body)} bytes, expected {size}")


# --- records of the connection


@dataclass(slots=True)
class Hello:
    """The first record in both directions. Times are in milliseconds."""

    lowest: int
    highest: int
    node: bytes
    link: int
    lane: int
    lanes: int
    max_streams: int
    serial: int
    received: int
    log: int
    resume: int
    idle_ping: int
    idle_silence: int
    active_ping: int
    active_silence: int
    own_secret: bytes
    peer_secret: bytes
    features: int = 0

    def encode(self) -> bytes:
        return header(HELLO, HELLO_SIZE) + _HELLO.pack(
            MAGIC, self.lowest, self.highest, self.features, self.node, self.link, self.lane, self.lanes,
            self.max_streams, self.serial, self.received, self.log, self.resume, self.idle_ping, self.idle_silence,
            self.active_ping, self.active_silence, self.own_secret, self.peer_secret, 0,
        )  # fmt: skip

    @staticmethod
    def decode(body: bytes) -> Hello:
        """Reads a HELLO's body. Log and resume are clamped; the PINGs are when both ends' meet."""
        if len(body) < HELLO_SIZE:
            raise WireError(f"HELLO has {len(body)} bytes, expected {HELLO_SIZE}")
        (
            magic, lowest, highest, features, node, link, lane, lanes, max_streams, serial, received, log, resume,
            idle_ping, idle_silence, active_ping, active_silence, own, peer, _,
        ) = _HELLO.unpack_from(body)  # fmt: skip
        if magic != MAGIC:
            raise WireError(f"HELLO starts with 0x{magic:08x}, expected 0x{MAGIC:08x}")
        if lowest == 0 or lowest > highest:
            raise WireError(f"HELLO offers versions {lowest} to {highest}, which is no range")
        if not 1 <= lanes <= MAX_LANES or lane >= lanes:
            raise WireError(f"HELLO is of lane {lane} of {lanes}; a link has 1 to {MAX_LANES}")
        return Hello(
            lowest, highest, node, link, lane, lanes, max_streams, serial, received,
            min(max(log, MIN_LOG), MAX_LOG), min(resume, MAX_RESUME_MS),
            idle_ping, idle_silence, active_ping, active_silence, own, peer, features,
        )  # fmt: skip


def meet_version(lowest: int, highest: int) -> int:
    """The highest version that both speak; WireError names both ranges."""
    version = min(highest, VERSION_MAX)
    if version < VERSION_MIN or version < lowest:
        raise WireError(
            f"HELLO offers versions {lowest} to {highest}, this side speaks {VERSION_MIN} to {VERSION_MAX}"
        )
    return version


def encode_ping(kind: int, value: int, received: int) -> bytes:
    return header(kind, 16) + _PAIR.pack(value, received)


def decode_ping(kind: int, body: bytes) -> tuple[int, int]:
    _exact(kind, body, 16)
    value, received = _PAIR.unpack(body)
    return value, received


def encode_ack(received: int) -> bytes:
    return header(ACK, 8) + _NUMBER.pack(received)


def decode_ack(body: bytes) -> int:
    _exact(ACK, body, 8)
    return int.from_bytes(body, "big")


def encode_goaway(code: int, text: str) -> bytes:
    raw = cut(text, MAX_END_TEXT)
    return header(GOAWAY, 2 + len(raw)) + code.to_bytes(2, "big") + raw


def decode_goaway(body: bytes) -> tuple[int, str]:
    if len(body) < 2:
        raise WireError(f"GOAWAY has {len(body)} bytes, expected 2")
    return int.from_bytes(body[:2], "big"), body[2:].decode("utf-8", "replace")


def cut(text: str, most: int) -> bytes:
    """The text in UTF-8, at most so many bytes, never within a character."""
    raw = text.encode("utf-8", "replace")
    return raw if len(raw) <= most else raw[:most].decode("utf-8", "ignore").encode()


# --- records of a stream


def encode_open(slot: int, number: int, key: int) -> bytes:
    return header(OPEN, 16, slot) + _PAIR.pack(number, key)


def decode_pair(kind: int, body: bytes) -> tuple[int, int]:
    """The body of OPEN (number, key) and of CONSUMED (number, bytes)."""
    _exact(kind, body, 16)
    x, y = _PAIR.unpack(body)
    return x, y


def encode_consumed(slot: int, number: int, consumed: int) -> bytes:
    return header(CONSUMED, 16, slot) + _PAIR.pack(number, consumed)


def encode_stop(slot: int, number: int) -> bytes:
    return header(STOP, 8, slot) + _NUMBER.pack(number)


def decode_stop(body: bytes) -> int:
    _exact(STOP, body, 8)
    return int.from_bytes(body, "big")


def encode_kill(slot: int, number: int, why: int) -> bytes:
    return header(KILL, 9, slot) + _KILL.pack(number, why)


def decode_kill(body: bytes) -> tuple[int, EndType]:
    """Number and the end that the consumer has; what is no such end of this version is KILLED."""
    _exact(KILL, body, 9)
    number, why = _KILL.unpack(body)
    return number, EndType(why) if EndType.COMPLETE < why <= EndType.PROTOCOL else EndType.KILLED


@dataclass(slots=True)
class End:
    """How a stream ended, and what goes with it."""

    type: EndType
    code: int = 0
    text: str = ""
    trailer: bytes = b""
    retryable: bool = False
    number: int = 0
    records: int = 0
    size: int = 0  # payload bytes

    def encode(self, slot: int) -> bytes:
        text = cut(self.text, MAX_END_TEXT)
        if len(self.trailer) > MAX_END_TRAILER:
            raise ValueError(f"a trailer of {len(self.trailer)} bytes, at most {MAX_END_TRAILER} are allowed")
        return b"".join((
            header(END, _END.size + len(text) + len(self.trailer), slot),
            _END.pack(self.number, self.type, self.retryable, self.code, self.records, self.size, len(text)),
            text, self.trailer,
        ))  # fmt: skip

    @staticmethod
    def decode(body: bytes) -> End:
        if len(body) < _END.size:
            raise WireError(f"END has {len(body)} bytes, expected {_END.size}")
        number, kind, flags, code, records, size, length = _END.unpack_from(body)
        if not EndType.COMPLETE <= kind <= EndType.PROTOCOL:
            raise WireError(f"END has the unknown type {kind}")
        rest = body[_END.size :]
        if length > MAX_END_TEXT or length > len(rest):
            raise WireError(f"END says {length} bytes of text, {len(rest)} are there and {MAX_END_TEXT} allowed")
        if len(rest) - length > MAX_END_TRAILER:
            raise WireError(f"END has a trailer of {len(rest) - length} bytes, {MAX_END_TRAILER} are allowed")
        text, trailer = rest[:length].decode("utf-8", "replace"), bytes(rest[length:])
        return End(EndType(kind), code, text, trailer, bool(flags & 1), number, records, size)


def encode_claim(ident: bytes) -> bytes:
    return header(CLAIM, 16) + ident


def decode_claim(body: bytes) -> bytes:
    _exact(CLAIM, body, 16)
    return bytes(body)


def encode_grant(ident: bytes, code: int, terms: bytes = b"") -> bytes:
    return header(GRANT, 18 + len(terms)) + ident + code.to_bytes(2, "big") + terms


def decode_grant(body: bytes) -> tuple[bytes, int, bytes]:
    if len(body) < 18:
        raise WireError(f"GRANT has {len(body)} bytes, expected 18")
    return bytes(body[:16]), int.from_bytes(body[16:18], "big"), bytes(body[18:])


# --- terms


@dataclass(slots=True)
class Terms:
    """What a frontend mints and a request carries. time_left is in microseconds, 0 for none."""

    frontend: bytes
    worker: bytes
    link: int
    slot: int
    number: int
    lane: int
    window: int
    time_left: int = 0
    key: int = 0

    def encode(self, secrets: bytes) -> bytes:
        """The encoding with the key of the link's secrets, the frontend's and then the worker's."""
        raw = _TERMS.pack(
            1, 0, self.frontend, self.worker, self.link, self.slot, self.number, self.lane, 0, self.window,
            self.time_left, 0,
        )  # fmt: skip
        return raw[:-8] + key_of(secrets, raw)

    @staticmethod
    def decode(raw: bytes) -> Terms:
        _check_terms(raw, 0, TERMS_SIZE)
        _, _, frontend, worker, link, slot, number, lane, _, window, left, key = _TERMS.unpack_from(raw)
        if slot >> 8 == 0:
            raise WireError("terms name slot 0, which no stream has")
        if not 1 <= number <= MAX_NUMBER:
            raise WireError(f"terms have the stream number {number}, allowed are 1 to {MAX_NUMBER}")
        if not MIN_WINDOW <= window <= MAX_WINDOW:
            raise WireError(f"terms give a window of {window} bytes, allowed are {MIN_WINDOW} to {MAX_WINDOW}")
        return Terms(frontend, worker, link, slot, number, lane, window, left, key)


@dataclass(slots=True)
class OpenTerms:
    """Terms that name a frontend and a request, but no worker."""

    frontend: bytes
    id: bytes
    time_left: int = 0

    def encode(self) -> bytes:
        return _OPEN_TERMS.pack(1, 1, self.frontend, self.id, self.time_left, 0)

    @staticmethod
    def decode(raw: bytes) -> OpenTerms:
        _check_terms(raw, 1, OPEN_TERMS_SIZE)
        _, _, frontend, ident, left, _ = _OPEN_TERMS.unpack_from(raw)
        return OpenTerms(frontend, ident, left)


def is_open_terms(raw: bytes) -> bool:
    return raw[:4] == b"\x00\x01\x00\x01"


def key_of(secrets: bytes, terms: bytes) -> bytes:
    """The key of an encoding of terms, which its bytes 72 to 79 must be."""
    return hmac.new(secrets, terms[: TERMS_SIZE - 8], hashlib.sha256).digest()[:8]


def key_holds(secrets: bytes, terms: bytes) -> bool:
    return hmac.compare_digest(key_of(secrets, terms), terms[TERMS_SIZE - 8 : TERMS_SIZE])


def _check_terms(raw: bytes, kind: int, size: int) -> None:
    if len(raw) < 4:
        raise WireError(f"terms have {len(raw)} bytes, expected {size}")
    version, got = int.from_bytes(raw[:2], "big"), int.from_bytes(raw[2:4], "big")
    if version != 1:
        raise TermsVersionError(f"terms are of version {version}, this side reads 1")
    if got != kind:
        raise WireError(f"terms are of kind {got}, expected {kind} (0: bound, 1: open)")
    if len(raw) < size:
        raise WireError(f"terms have {len(raw)} bytes, expected {size}")
