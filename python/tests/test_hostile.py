"""A frontend that breaks the rules: the worker answers as docs/wire.md says, never hangs, and never grows unbounded."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
from conftest import PATIENCE, Scripted

from laneway import Code, Config, End, EndType, Node, Refused, wire
from laneway.wire import Away


@contextlib.asynccontextmanager
async def worker(**change: Any) -> AsyncIterator[Node]:
    node = Node(Config(planes=("tcp",), host="127.0.0.1", **change))
    await node.listen()
    try:
        yield node
    finally:
        await node.close()
        assert node.committed == 0 and node.log_bytes == 0 and not node.links


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"lowest": 2, "highest": 3}, Away.VERSION),
        ({"lowest": 0}, Away.PROTOCOL),
        ({"lanes": 0}, Away.PROTOCOL),
        ({"lanes": 17}, Away.PROTOCOL),
        ({"lane": 1}, Away.PROTOCOL),
        ({"received": 8}, Away.PROTOCOL),
        ({"peer_secret": b"x" * 16}, Away.UNKNOWN_LINK),
    ],
)
async def test_hello(change: dict[str, Any], code: Away) -> None:
    async with worker() as node:
        f = await Scripted.dial(node)
        f.writer.write(f.hello(**change).encode())
        assert await f.away() == code
        f.close()


@pytest.mark.parametrize(
    "raw", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00", b"\x01\xff\xff\xff\0\0\0\0", b"\x02" * 99]
)
async def test_no_hello(raw: bytes) -> None:
    async with worker() as node:
        f = await Scripted.dial(node)
        f.writer.write(raw)
        assert await f.away() == Away.PROTOCOL
        f.close()


async def test_random_bytes() -> None:
    rng = random.Random(1)
    async with worker() as node:
        for n in range(200):
            f = await Scripted.dial(node)
            greeted = n % 2 == 0
            if greeted:
                await f.greet(link=n)
            kind = rng.choice([0, 1, 2, 5, 0x20, 0x21, 0x22, 0x23, 0x10, 0xC0, 0xE0, 0xFF])
            f.writer.write(bytes([kind]) + rng.randbytes(rng.randrange(1, 400)))
            with contextlib.suppress(OSError):
                f.writer.write_eof()
                await asyncio.wait_for(f.reader.read(), PATIENCE)
            f.close()
        f = await Scripted.dial(node)
        await f.greet(link=1000)  # it still takes part
        f.close()


async def test_serials_and_secrets() -> None:
    async with worker() as node:
        f = await Scripted.dial(node)
        first = await f.greet()
        again = await Scripted.dial(node)
        second = await again.greet(serial=2)  # nobody has named its secret: the same link
        assert second.own_secret == first.own_secret
        assert await asyncio.wait_for(f.reader.read(), PATIENCE) == b""
        for change, code in (
            ({"serial": 2, "peer_secret": first.own_secret}, Away.LIMIT),  # replayed
            ({"serial": 9, "peer_secret": b"x" * 16}, Away.UNKNOWN_LINK),
            ({"serial": 9, "own_secret": b"x" * 16, "peer_secret": first.own_secret}, Away.UNKNOWN_LINK),
            ({"serial": 9, "own_secret": b"x" * 16}, Away.UNKNOWN_LINK),  # no HELLO of another link ends it
        ):
            g = await Scripted.dial(node)
            g.writer.write(g.hello(**change).encode())
            assert await g.away() == code, change
        third = await Scripted.dial(node)
        await third.greet(serial=10, peer_secret=first.own_secret)
        g = await Scripted.dial(node)
        g.writer.write(g.hello(serial=11).encode())  # its secret has been named
        assert await g.away() == Away.UNKNOWN_LINK
        assert len(node.links) == 1


async def test_takeover_sends_the_rest_again() -> None:
    async with worker() as node:
        f = await Scripted.dial(node)
        secret = (await f.greet()).own_secret
        stream = node.attach(f.terms())
        for n in range(5):
            assert stream.put(b"%d" % n)
        node.flush()
        assert (await f.record())[0] == wire.OPEN
        assert (await f.record())[2] == b"0"
        at = f.received
        f.close()
        assert stream.put(b"5")
        g = await Scripted.dial(node)
        await g.greet(serial=2, peer_secret=secret, received=at)
        node.flush()
        assert [(await g.record())[2] for _ in range(5)] == [b"1", b"2", b"3", b"4", b"5"]
        for received in (at - 8, at + 3):  # less than was acknowledged; where no record ends
            h = await Scripted.dial(node)
            h.writer.write(h.hello(serial=3, peer_secret=secret, received=received).encode())
            assert await h.away() == (Away.PROTOCOL if received < at else Away.UNKNOWN_LINK)
        assert stream.end is not None and stream.end.type is EndType.PROTOCOL


async def test_terms() -> None:
    async with worker() as node:
        f = await Scripted.dial(node)
        await f.greet()
        good = f.terms()
        for raw, code in (
            (b"", Code.BAD_REQUEST),
            (b"\x00\x02" + good[2:], Code.UNSUPPORTED),
            (good[:-1] + bytes([good[-1] ^ 1]), Code.NO_WORKER),
            (f.terms(worker=os.urandom(16)), Code.NO_WORKER),  # of another life
            (f.terms(frontend=os.urandom(16)), Code.NO_WORKER),
            (f.terms(link=2), Code.NO_WORKER),
            (f.terms(lane=1), Code.NO_WORKER),
            (f.terms(index=70_000), Code.NO_WORKER),
            (f.terms(secrets=bytes(32)), Code.NO_WORKER),
            (f.terms(window=4095), Code.BAD_REQUEST),
        ):
            with pytest.raises(Refused) as refused:
                node.attach(raw)
            assert refused.value.code == code
        node.attach(good + b"tail")
        with pytest.raises(Refused):
            node.attach(good)  # twice
        f.close()


@pytest.mark.parametrize(
    "raw",
    [
        wire.encode_ack(1),
        wire.encode_ping(wire.PING, 1, 999),
        wire.encode_stop(70_000 << 8, 1),
        wire.encode_kill(1 << 8, 0, 4),
        wire.encode_kill(1 << 8, 1 << 62, 4),
        b"",
        wire.header(wire.DATA, 3, 1 << 8) + b"abc",
        wire.header(wire.GRANT, 1 << 20),
        wire.header(wire.STOP, 9, 1 << 8) + bytes(9),
        wire.header(wire.PING, 16, 1 << 8) + bytes(16),
        wire.header(0x30, 0),
    ],
)
async def test_the_link_ends(raw: bytes) -> None:
    """What docs/wire.md lays to the link's charge; with nothing before it, the KILL that breaks the rule."""
    async with worker() as node:
        f = await Scripted.dial(node)
        await f.greet()
        stream = node.attach(f.terms(index=9))
        f.writer.write(raw + wire.encode_kill(9 << 8, 7, 4))  # number 7 while 1 is open
        await f.away()
        assert stream.end is not None and stream.end.type is EndType.PROTOCOL and not node.links


async def test_consumed_out_of_range_ends_the_stream() -> None:
    async with worker() as node:
        f = await Scripted.dial(node)
        await f.greet()
        stream = node.attach(f.terms())
        f.writer.write(wire.encode_consumed(1 << 8, 1, 1))
        _, body = await f.until(wire.END)
        assert wire.End.decode(body).type is EndType.PROTOCOL
        assert stream.end is not None and stream.end.type is EndType.PROTOCOL and node.links
        f.close()


async def test_hints_are_skipped() -> None:
    async with worker() as node:
        f = await Scripted.dial(node)
        await f.greet()
        for kind in (0xC0, 0xE0):
            f.writer.write(wire.header(kind, 100_000, 5) + bytes(100_000))
        f.writer.write(wire.encode_ping(wire.PING, 7, 0))
        _, body = await f.until(wire.PONG)
        assert wire.decode_ping(wire.PONG, body) == (7, 100_008)  # one of the two is counted
        f.close()


async def test_window() -> None:
    async with worker() as node:
        f = await Scripted.dial(node)
        await f.greet()
        stream = node.attach(f.terms(window=4096))
        puts = 0
        while stream.put(bytes(100)):
            puts += 1
        assert puts == 4096 // 108
        waiting = asyncio.create_task(stream.send(b"more"))
        await f.until(wire.OPEN)
        f.writer.write(wire.encode_consumed(1 << 8, 1, 108))
        assert await asyncio.wait_for(waiting, PATIENCE)
        f.close()


async def test_kill_storm() -> None:
    """65,536 KILLs from a peer that does not read: index and log bound what it costs, and each has its END."""
    async with worker(lane_log=256 << 10) as node:
        f = await Scripted.dial(node)
        await f.greet()
        count = 65_536
        for i in range(1, count + 1):
            f.writer.write(wire.encode_kill(i << 8, 1, wire.EndType.KILLED))
        await f.writer.drain()
        lane = node.links[b"F" * 16, 1].lanes[0]

        async def handled() -> None:
            while lane.received < count * 17:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

        await asyncio.wait_for(handled(), PATIENCE)
        assert node.log_bytes <= 256 << 10
        ended: set[int] = set()
        while len(ended) < count:
            kind, slot, body = await f.record()
            if kind == wire.END:
                assert wire.End.decode(body).type is EndType.KILLED and wire.End.decode(body).number == 1
                assert slot not in ended
                ended.add(slot)
                if len(ended) % 1000 == 0:
                    f.writer.write(wire.encode_ack(f.received))
        f.writer.write(wire.encode_ack(f.received) + wire.encode_kill(1 << 8, 2, 4))
        await f.until(wire.END)  # its index is free again
        f.close()


async def test_budget() -> None:
    async with worker(max_memory=(1 << 20) + 4096) as node:
        f = await Scripted.dial(node)
        await f.greet()
        for i in range(1, 17):
            node.attach(f.terms(index=i))
        with pytest.raises(Refused) as refused:
            node.attach(f.terms(index=17))
        assert refused.value.code == Code.BUSY
        f.writer.write(wire.encode_kill(1 << 8, 1, 4))
        await f.until(wire.END)
        node.attach(f.terms(index=17))
        f.close()


async def test_stop_before_the_request() -> None:
    async with worker() as node:
        f = await Scripted.dial(node)
        await f.greet()
        f.writer.write(wire.encode_stop(1 << 8, 5) + wire.encode_ping(wire.PING, 1, 0))
        await f.until(wire.PONG)
        with pytest.raises(Refused):
            node.attach(f.terms(number=4))
        stream = node.attach(f.terms(number=5))
        assert stream.stop_requested and stream.cancelled.is_set()
        f.close()


async def test_skipped_records_of_a_killed_stream() -> None:
    """What is unsent of a killed stream is not written; what others have put is, in order."""
    async with worker() as node:
        f = await Scripted.dial(node)
        await f.greet()
        a, b = node.attach(f.terms(index=1)), node.attach(f.terms(index=2))
        lane = a.lane
        connection, lane.connection = lane.connection, None
        for n in range(400):
            assert a.put(b"a" * 100) and b.put(b"%03d" % n)
        node.links[b"F" * 16, 1].record(lane, wire.KILL, 1 << 8, wire.encode_kill(1 << 8, 1, 4)[8:])
        assert b.finish(End(EndType.COMPLETE))
        lane.connection = connection
        lane.flush()
        got: list[bytes] = []
        ends: dict[int, EndType] = {}
        while len(ends) < 2:
            kind, slot, body = await f.record()
            if kind == wire.DATA:
                assert slot == 2 << 8
                got.append(body)
            elif kind == wire.END:
                ends[slot] = wire.End.decode(body).type
        assert got == [b"%03d" % n for n in range(400)]
        assert ends == {1 << 8: EndType.KILLED, 2 << 8: EndType.COMPLETE}
        f.close()


async def test_crowd_of_handshakes() -> None:
    """Strangers that say nothing do not keep an address that has had a link away."""
    async with worker() as node:
        f = await Scripted.dial(node)
        secret = (await f.greet()).own_secret
        idle = [await Scripted.dial(node) for _ in range(300)]
        g = await Scripted.dial(node)
        await g.greet(serial=2, peer_secret=secret)
        for c in (*idle, g):
            c.close()


async def test_silence() -> None:
    async with worker(active_ping=100, active_silence=300) as node:
        f = await Scripted.dial(node)
        await f.greet(active_ping=100, active_silence=300)
        node.attach(f.terms())
        assert await asyncio.wait_for(f.reader.read(), PATIENCE) == b""
        assert node.links  # the lane waits for the next connection
