"""The same byte strings to the Go decoder and to this one: both make the same of each.

LANEWAY_DIFFER_SECONDS says for how long, 5 by default.
"""

from __future__ import annotations

import os
import random
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from test_wire import RECORDS

from laneway import wire

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
KINDS = [*range(0x18), *range(0x1F, 0x26), 0x80, 0xBF, 0xC0, 0xDF, 0xE0, 0xFF]


def described(raw: bytes) -> str:
    which, b = raw[0], raw[1:]
    try:
        if which % 4 == 0:
            t = wire.Terms.decode(b)
            holds = wire.key_holds(b"\x01".ljust(16, b"\0") + b"\x02".ljust(16, b"\0"), b)
            fields = f"{t.link} {t.slot} {t.number} {t.lane} {t.window} {t.key}"
            return f"terms {t.frontend.hex()} {t.worker.hex()} {fields} {str(holds).lower()}"
        if which % 4 == 1:
            o = wire.OpenTerms.decode(b)
            return f"openterms {o.frontend.hex()} {o.id.hex()}"
    except wire.WireError:
        return "bad"
    if len(b) < wire.HEADER_SIZE:
        return "short"
    head, slot = wire.HEADER.unpack_from(b)
    kind, length = head >> 24, head & 0xFFFFFF
    try:
        wire.check_header(kind, length, slot, from_worker=which % 4 == 2)
    except wire.WireError:
        return "header"
    if wire.skipped(kind):
        return f"skip {length} {str(wire.counted(kind)).lower()}"
    if len(b) < wire.HEADER_SIZE + length:
        return "more"
    try:
        fields = " ".join(str(f) for f in body_of(kind, b[8 : 8 + length]))
    except wire.WireError:
        return "bad"
    return f"{kind:02x} {slot} {fields}"


def body_of(kind: int, body: bytes) -> tuple[object, ...]:
    if kind == wire.HELLO:
        h = wire.Hello.decode(body)
        return (
            h.lowest, h.highest, h.features, h.link, h.lane, h.lanes, h.max_streams, h.serial, h.received, h.log,
            h.resume, h.idle_ping, h.active_silence, h.node.hex(), h.own_secret.hex(), h.peer_secret.hex(),
        )  # fmt: skip
    if kind in (wire.PING, wire.PONG):
        return wire.decode_ping(kind, body)
    if kind in (wire.OPEN, wire.CONSUMED):
        return wire.decode_pair(kind, body)
    if kind == wire.ACK:
        return (wire.decode_ack(body),)
    if kind == wire.GOAWAY:
        return (wire.decode_goaway(body)[0],)
    if kind in (wire.DATA, wire.DATA_MORE):
        return (body.hex(),)
    if kind == wire.END:
        e = wire.End.decode(body)
        return (e.number, int(e.type), str(e.retryable).lower(), e.code, e.records, e.size, e.trailer.hex())
    if kind == wire.CLAIM:
        return (wire.decode_claim(body).hex(),)
    if kind == wire.STOP:
        return (wire.decode_stop(body),)
    if kind == wire.KILL:
        number, why = wire.decode_kill(body)
        return (number, int(why))
    ident, code, terms = wire.decode_grant(body)
    return (ident.hex(), code, terms.hex())


def strings(rng: random.Random, count: int) -> list[bytes]:
    """Golden records with a few bytes changed, and records whose header is right and whose body is noise."""
    out = []
    golden = list(RECORDS.items())
    for _ in range(count):
        name, raw = rng.choice(golden)
        b = bytearray(raw)
        if rng.random() < 0.4:
            n = rng.choice([0, 1, 2, 8, 9, 16, 18, 30, 31, 128, 200, 2048, 2049])
            kind, slot = rng.choice(KINDS), rng.choice([0, 1, 255, 256, 7 << 8 | 3, 0xFFFFFFFF])
            b = bytearray(wire.header(kind, n, slot) + rng.randbytes(n))
        for _ in range(rng.randrange(4)):
            if b:
                b[rng.randrange(len(b))] = rng.choice([0, 1, 8, 9, 127, 255, rng.randrange(256)])
        if rng.random() < 0.2:
            b = b[: rng.randrange(len(b) + 1)]
        if rng.random() < 0.1:
            b += rng.randbytes(5)
        which = 0 if name == "terms" else 1 if name == "openterms" else rng.choice([2, 3])
        out.append(bytes([which if rng.random() < 0.9 else rng.randrange(4)]) + bytes(b))
    return out


def test_go_and_python_decode_alike() -> None:
    binary = str(Path(tempfile.mkdtemp()) / "wire.test")
    subprocess.run(["go", "test", "-c", "-o", binary, "./mux/internal/wire"], cwd=ROOT, check=True)
    seed = int(os.environ.get("LANEWAY_DIFFER_SEED", time.time_ns()))
    rng, until, seen = random.Random(seed), time.monotonic() + float(os.environ.get("LANEWAY_DIFFER_SECONDS", "5")), 0
    kinds: set[str] = set()
    while time.monotonic() < until:
        batch = strings(rng, 20_000)
        feed = b"".join(len(b).to_bytes(4, "big") + b for b in batch)
        done = subprocess.run(
            [binary, "-test.run=^TestDecodeStdin$"], input=feed, env={**os.environ, "LANEWAY_DECODE_STDIN": "1"},
            stdout=subprocess.PIPE, check=True,
        )  # fmt: skip
        answers = [line[1:] for line in done.stdout.decode().splitlines() if line.startswith("=")]
        assert len(answers) == len(batch)
        for raw, answer in zip(batch, answers, strict=True):
            mine = described(raw)
            assert mine == answer, f"seed {seed}: {raw.hex()}"
            kinds.add(mine.split(" ")[0])
        seen += len(batch)
    assert {"bad", "header", "more", "short", "skip", "terms", "openterms", "01", "13", "23"} <= kinds
    print(f"{seen} strings, no difference")
