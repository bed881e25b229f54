"""The worker against the real frontend."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Any

import pytest
from conftest import PATIENCE, RealFrontend

from laneway import Config, End, EndType, Node, Refused, Stream

pytestmark = pytest.mark.slow


def record(i: int, j: int, size: int = 64) -> bytes:
    return f"{i}:{j} ".encode().ljust(size, b".")


async def write(stream: Stream, i: int, count: int, size: int = 64, pause: float = 0.0) -> None:
    for j in range(count):
        if not await stream.send(record(i, j, size)):
            return
        if pause:
            await asyncio.sleep(pause)
    stream.finish(End(EndType.COMPLETE, trailer=b"done"))
    stream.lane.flush_soon()


@contextlib.asynccontextmanager
async def pair(binary: str, plane: str, *flags: str, through: Cutter | None = None) -> Any:
    node = Node(Config(planes=(plane,), host="127.0.0.1"))
    await node.listen()
    descriptor = node.descriptor()
    if through is not None:
        descriptor["planes"][0]["endpoints"] = [await through.listen(descriptor["planes"][0]["endpoints"][0])]
    frontend = await RealFrontend.start(binary, descriptor, "-plane", plane, *flags)
    try:
        yield node, frontend
    finally:
        if through is not None:
            through.close()
        await node.close()
        if frontend.process.returncode is None:
            frontend.process.kill()
        await frontend.reader


class Cutter:
    """A proxy that cuts every connection now and then."""

    def __init__(self, every: float) -> None:
        self.every = every
        self.cuts = 0
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def listen(self, target: str) -> str:
        host, _, port = target.rpartition(":")

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError):
                while data := await source.read(1 << 14):
                    sink.write(data)
                    await sink.drain()
            sink.close()

        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            back, forth = await asyncio.open_connection(host, int(port))
            self._open |= {writer, forth}
            await asyncio.gather(pump(reader, forth), pump(back, writer))

        self._server = await asyncio.start_server(accepted, "127.0.0.1", 0)
        self._tasks.add(asyncio.create_task(self._cut()))
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _cut(self) -> None:
        while True:
            await asyncio.sleep(self.every)
            cut, self._open = self._open, set()
            self.cuts += bool(cut)
            for w in cut:
                w.transport.abort()

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._server is not None:
            self._server.close()


@pytest.mark.parametrize("plane", ["tcp", "tls"])
async def test_streams(frontend_binary: str, plane: str) -> None:
    async with pair(frontend_binary, plane, "-lanes", "2") as (node, frontend):
        frontend.say("mint 100")
        tasks = []
        for _ in range(100):
            i, terms = await frontend.next_terms()
            tasks.append(asyncio.create_task(write(node.attach(terms), i, 256)))
        await frontend.ended(100)
        await asyncio.gather(*tasks)
        assert {tuple(e[:4]) for e in frontend.ends.values()} == {("complete", "256", "0", b"done".hex())}
        assert await node.drain(PATIENCE)
        assert node.committed == 0 and not any(k.streams for k in node.links.values())


async def test_slow_consumer_and_long_records(frontend_binary: str) -> None:
    """A window of 16 KiB: records of 10,000 bytes go as fragments, and the writer waits for CONSUMED."""
    async with pair(frontend_binary, "tls", "-window", "16384", "-delay", "1ms") as (node, frontend):
        frontend.say("mint 4")
        for _ in range(4):
            i, terms = await frontend.next_terms()
            stream = node.attach(terms)
            with pytest.raises(ValueError, match="at most"):
                stream.put(bytes(17 << 20))
            size = (10_000, 100_000, 8_184, 8_185)[i]
            await asyncio.wait_for(write(stream, i, 50, size), PATIENCE)
        await frontend.ended(4)
        assert {tuple(e[:3]) for e in frontend.ends.values()} == {("complete", "50", "0")}


@pytest.mark.parametrize("lanes", ["1", "3"])
async def test_lanes_are_cut(frontend_binary: str, lanes: str) -> None:
    """100 streams of 256 records over tls, with the connections cut every 200 ms: nothing lost, nothing repeated."""
    cutter = Cutter(0.2)
    async with pair(frontend_binary, "tls", "-lanes", lanes, through=cutter) as (node, frontend):
        frontend.say("mint 100")
        tasks = []
        for _ in range(100):
            i, terms = await frontend.next_terms()
            tasks.append(asyncio.create_task(write(node.attach(terms), i, 256, pause=0.01 * random.random())))
        await frontend.ended(100)
        await asyncio.gather(*tasks)
        assert {tuple(e[:3]) for e in frontend.ends.values()} == {("complete", "256", "0")}
        assert cutter.cuts >= 3 and node.stats.takeovers >= 3, (cutter.cuts, node.stats)


async def test_frontend_is_killed(frontend_binary: str) -> None:
    """Streams end as lost when the hold of their lanes is over: resume + idle silence + 5 s, here 0.5 + 0.5 + 5."""
    node = Node(Config(planes=("tls",), host="127.0.0.1", resume=500, idle_ping=100, idle_silence=500))
    await node.listen()
    frontend = await RealFrontend.start(frontend_binary, node.descriptor(), "-plane", "tls")
    frontend.say("mint 100")
    streams = [node.attach((await frontend.next_terms())[1]) for _ in range(100)]
    for stream in streams:
        assert stream.put(b"x")
    node.flush()
    frontend.process.kill()
    began = node.loop.time()
    for stream in streams:
        await asyncio.wait_for(stream.cancelled.wait(), PATIENCE)
    assert node.loop.time() - began >= 5.5
    assert {s.end.type for s in streams if s.end is not None} == {EndType.LOST}
    assert node.committed == 0 and not node.links
    await node.close()


async def test_stop_and_kill(frontend_binary: str) -> None:
    """Before the request and after it, before the first record and after it."""
    async with pair(frontend_binary, "tls") as (node, frontend):
        frontend.say("mint 3")
        i, terms = await frontend.next_terms()
        stream = node.attach(terms)
        called = asyncio.Event()
        stream.on_cancel(called.set)
        frontend.say(f"stop {i}")
        await asyncio.wait_for(called.wait(), PATIENCE)
        assert stream.end is None and stream.stop_requested
        stream.finish(End(EndType.STOPPED, trailer=b"u"))
        node.flush()
        i, terms = await frontend.next_terms()
        stream = node.attach(terms)
        stream.put(record(i, 0))
        node.flush()
        frontend.say(f"kill {i}")
        await asyncio.wait_for(stream.cancelled.wait(), PATIENCE)
        assert stream.end is not None and stream.end.type is EndType.KILLED and not stream.put(b"x")
        i, terms = await frontend.next_terms()
        frontend.say(f"kill {i}")  # the request comes after it
        await frontend.ended(3)
        assert [frontend.ends[j][0] for j in range(3)] == ["stopped", "killed", "killed"]
        while True:  # the KILL is under way, and its END comes back
            frontend.say("mint 1")
            j, again = await frontend.next_terms()
            probe = node.attach(again)
            probe.finish(End(EndType.COMPLETE))
            node.flush()
            await frontend.ended(j + 1)
            break
        with pytest.raises(Refused):
            node.attach(terms)


async def test_claim(frontend_binary: str) -> None:
    async with pair(frontend_binary, "tls") as (node, frontend):
        frontend.say("open")
        i, terms = await frontend.next_terms()
        stream = await asyncio.wait_for(node.claim(terms), PATIENCE)
        await write(stream, i, 10)
        await frontend.ended(1)
        assert frontend.ends[i][:3] == ["complete", "10", "0"]
        with pytest.raises(Refused):
            await asyncio.wait_for(node.claim(terms), PATIENCE)


async def test_drain(frontend_binary: str) -> None:
    async with pair(frontend_binary, "tls") as (node, frontend):
        frontend.say("mint 2")
        i, terms = await frontend.next_terms()
        stream = node.attach(terms)
        _, late = await frontend.next_terms()
        assert not await node.drain(0.05)
        with pytest.raises(Refused, match="drains"):
            node.attach(late)
        await write(stream, i, 5)
        await frontend.ended(1)
        assert await node.drain(PATIENCE)
