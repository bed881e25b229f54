"""The golden vectors of docs/serving.md."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from laneway import serving

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "serving.md").read_text()
GOLDEN = {name: bytes.fromhex(raw) for name, raw in re.findall(r"^([a-z]+) +([0-9a-f]{10,})$", PAGE, re.M)}
FIRST = b'data: {"id":"c1","choices":[{"index":0,"delta":{"content":" one"}}]}'


def test_the_request() -> None:
    request = serving.RequestHead.decode(GOLDEN["request"])
    assert (request.method, request.path, request.model) == ("POST", "/v1/chat/completions", "m")
    assert request.stream and request.headers["accept"] == "text/event-stream"
    at, length = request.model_at
    assert request.body[at : at + length] == b'"m"'
    assert request.encode() == GOLDEN["request"]


def test_an_answer() -> None:
    e = serving.Encoder(delta=True)
    events = [FIRST, FIRST.replace(b"one", b"two")]
    got = []
    for event in events:
        got.append(e.record(serving.EVENT, event))
        e.taken(serving.EVENT, event)
    got.append(e.record(serving.LAST, b"data: [DONE]"))
    assert got == [GOLDEN["head"], GOLDEN["delta"], GOLDEN["last"]]
    assert GOLDEN["event"] == b"\x02" + FIRST


def test_trailers() -> None:
    assert serving.trailer((4, 256), ["stop", "length"])[:3] == GOLDEN["trailer"][:3]
    refused = serving.trailer(answer=(429, {"retry-after": "2"}, b'{"error":{}}'))
    assert refused == GOLDEN["refused"]


@pytest.mark.parametrize("cut", range(60))
def test_cut_requests(cut: int) -> None:
    with pytest.raises(serving.MalformedError):
        serving.RequestHead.decode(GOLDEN["request"][:cut])


def test_deltas_are_lossless() -> None:
    rng = random.Random(2)

    def read(raw: bytes, at: int) -> tuple[int, int]:
        n = shift = 0
        while True:
            n |= (raw[at] & 127) << shift
            shift += 7
            at += 1
            if raw[at - 1] < 128:
                return n, at

    for _ in range(5000):
        before = bytes(rng.choice(b"ab") for _ in range(rng.randrange(1, 300)))
        event = bytearray(before)
        for _ in range(rng.randrange(4)):
            at = rng.randrange(len(event) + 1)
            event[at : at + rng.randrange(5)] = bytes(rng.choice(b"ab") for _ in range(rng.randrange(5)))
        raw = serving.delta_record(before, bytes(event))
        assert len(raw) <= len(event) + 1
        if raw[0] == serving.EVENT:
            assert raw[1:] == event
            continue
        prefix, at = read(raw, 1)
        suffix, at = read(raw, at)
        assert prefix + suffix <= len(before)
        assert before[:prefix] + raw[at:] + before[len(before) - suffix :] == event
