"""The golden vectors, byte for byte, both ways."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from laneway import wire

ROOT = Path(__file__).resolve().parents[2]
VECTORS = ROOT / "mux" / "internal" / "wire" / "testdata"
SLOT = 7 << 8 | 3


def run(start: int) -> bytes:
    return bytes(range(start, start + 16))


SECRETS = run(0x40) + run(0x80)
HELLO = wire.Hello(
    1, 1, run(0x10), 5, 2, 4, 65536, 9, 4096, 4 << 20, 10_000, 5_000, 15_000, 1_000, 3_000, run(0x40), run(0x80)
)
TERMS = wire.Terms(run(0x10), run(0x20), 5, SLOT, 300, 2, 65536, 1_500_000)
END = wire.End(wire.EndType.FAILED, 1, "engine", b"\x01\x02\x03", True, 300, 2, 128)
RECORDS = {
    "hello": HELLO.encode(),
    "ping": wire.encode_ping(wire.PING, 0x0102030405060708, 4096),
    "pong": wire.encode_ping(wire.PONG, 0x0102030405060708, 4096),
    "ack": wire.encode_ack(4096),
    "goaway": wire.encode_goaway(wire.Away.UNKNOWN_LINK, "unknown link"),
    "open": wire.encode_open(SLOT, 300, 0x0123456789ABCDEF),
    "data": wire.header(wire.DATA, 5, SLOT) + b"hello",
    "data_more": wire.header(wire.DATA_MORE, 3, SLOT) + b"hel",
    "end": END.encode(SLOT),
    "consumed": wire.encode_consumed(SLOT, 300, 32768),
    "stop": wire.encode_stop(SLOT, 300),
    "kill": wire.encode_kill(SLOT, 300, wire.EndType.DEADLINE),
    "claim": wire.encode_claim(run(0xA0)),
    "grant": wire.encode_grant(run(0xA0), 0, TERMS.encode(SECRETS)),
    "terms": TERMS.encode(SECRETS),
    "openterms": wire.OpenTerms(run(0x10), run(0xA0), 1_500_000).encode(),
}


def golden(name: str) -> bytes:
    return bytes.fromhex((VECTORS / f"{name}.hex").read_text().strip())


def test_every_vector_is_here() -> None:
    assert {p.stem for p in VECTORS.glob("*.hex")} == set(RECORDS)
    page = dict(re.findall(r"^\| (\w+) \| `([0-9a-f]+)` \|$", (ROOT / "docs" / "wire.md").read_text(), re.M))
    assert {name: bytes.fromhex(raw) for name, raw in page.items()} == RECORDS


@pytest.mark.parametrize("name", RECORDS)
def test_encodes(name: str) -> None:
    assert RECORDS[name].hex() == golden(name).hex()


def test_decodes() -> None:
    body = {name: golden(name)[8:] for name in RECORDS}
    assert wire.Hello.decode(body["hello"]) == HELLO
    assert wire.decode_ping(wire.PING, body["ping"]) == (0x0102030405060708, 4096)
    assert wire.decode_ack(body["ack"]) == 4096
    assert wire.decode_goaway(body["goaway"]) == (2, "unknown link")
    assert wire.decode_pair(wire.OPEN, body["open"]) == (300, 0x0123456789ABCDEF)
    assert wire.End.decode(body["end"]) == END
    assert wire.decode_pair(wire.CONSUMED, body["consumed"]) == (300, 32768)
    assert wire.decode_stop(body["stop"]) == 300
    assert wire.decode_kill(body["kill"]) == (300, wire.EndType.DEADLINE)
    assert wire.decode_claim(body["claim"]) == run(0xA0)
    assert wire.decode_grant(body["grant"]) == (run(0xA0), 0, golden("terms"))
    terms = wire.Terms.decode(golden("terms"))
    assert wire.key_holds(SECRETS, golden("terms")) and not wire.key_holds(SECRETS[::-1], golden("terms"))
    terms.key = 0
    assert terms == TERMS
    assert wire.is_open_terms(golden("openterms")) and not wire.is_open_terms(golden("terms"))
    assert wire.OpenTerms.decode(golden("openterms")).id == run(0xA0)


@pytest.mark.parametrize("name", [n for n in RECORDS if n not in ("terms", "openterms")])
def test_headers(name: str) -> None:
    head, slot = wire.HEADER.unpack_from(golden(name))
    kind, length = head >> 24, head & 0xFFFFFF
    assert length == len(golden(name)) - 8
    if name in ("open", "data", "data_more", "end", "claim"):
        wire.check_header(kind, length, slot, from_worker=True)
        with pytest.raises(wire.WireError):
            wire.check_header(kind, length, slot)
    else:
        wire.check_header(kind, length, slot)
    with pytest.raises(wire.WireError):
        wire.check_header(kind, 1 << 23, slot, from_worker=True)
