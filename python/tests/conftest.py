"""What the tests share: the real frontend as a child process, and a scripted one that says what it likes."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from laneway import Node, wire

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 60.0


@pytest.fixture(scope="session")
def frontend_binary() -> str:
    """Builds the driver of the real frontend."""
    if shutil.which("go") is None:
        pytest.fail("the go command is missing: it builds the real frontend")
    out = os.environ.get("LANEWAY_INTEROP", "")
    if not out:
        out = str(Path(tempfile.mkdtemp()) / "interop")
        subprocess.run(["go", "build", "-o", out, "./python/tests/interop"], cwd=ROOT, check=True)
    return out


class RealFrontend:
    """The Go frontend. terms and ends are what it has printed, by response."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.terms: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue()
        self.ends: dict[int, list[str]] = {}
        self.changed = asyncio.Event()
        self.ready = asyncio.Event()
        self.reader = asyncio.create_task(self._read())

    @staticmethod
    async def start(binary: str, descriptor: dict[str, Any], *flags: str, ready: bool = True) -> RealFrontend:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(binary, *flags, stdin=pipe, stdout=pipe)
        frontend = RealFrontend(process)
        frontend.say(json.dumps(descriptor))
        if ready:
            await asyncio.wait_for(frontend.ready.wait(), PATIENCE)
        return frontend

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")

    async def _read(self) -> None:
        assert self.process.stdout is not None
        while raw := await self.process.stdout.readline():
            words = raw.decode().split()
            if words[0] in ("terms", "open"):
                self.terms.put_nowait((int(words[1]), bytes.fromhex(words[2])))
            elif words[0] == "end":
                self.ends[int(words[1])] = words[2:]
            elif words[0] == "ready":
                self.ready.set()
            self.changed.set()

    async def next_terms(self) -> tuple[int, bytes]:
        return await asyncio.wait_for(self.terms.get(), PATIENCE)

    async def ended(self, count: int) -> None:
        async def enough() -> None:
            while len(self.ends) < count:
                self.changed.clear()
                await self.changed.wait()

        await asyncio.wait_for(enough(), PATIENCE)

    async def quit(self) -> None:
        if self.process.returncode is None:
            self.say("quit")
            await asyncio.wait_for(self.process.wait(), PATIENCE)
        await self.reader


class Scripted:
    """A frontend that says what a test has it say, over plane tcp."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.worker: wire.Hello | None = None
        self.secret = b"f" * 16
        self.received = 0

    @staticmethod
    async def dial(node: Node) -> Scripted:
        host, _, port = node.descriptor()["planes"][0]["endpoints"][0].rpartition(":")
        return Scripted(*await asyncio.open_connection(host, int(port)))

    def hello(self, **change: Any) -> wire.Hello:
        h = wire.Hello(
            1, 1, b"F" * 16, 1, 0, 1, 65536, 1, 0, 4 << 20, 10_000, 5_000, 15_000, 1_000, 3_000, self.secret, bytes(16)
        )
        for name, value in change.items():
            setattr(h, name, value)
        return h

    async def greet(self, **change: Any) -> wire.Hello:
        self.writer.write(self.hello(**change).encode())
        kind, _, body = await self.record()
        assert kind == wire.HELLO, (kind, body)
        self.worker = wire.Hello.decode(body)
        return self.worker

    async def record(self) -> tuple[int, int, bytes]:
        raw = await asyncio.wait_for(self.reader.readexactly(8), PATIENCE)
        head, slot = wire.HEADER.unpack(raw)
        body = await asyncio.wait_for(self.reader.readexactly(head & 0xFFFFFF), PATIENCE)
        if wire.counted(head >> 24):
            self.received += 8 + len(body)
        return head >> 24, slot, body

    async def until(self, kind: int) -> tuple[int, bytes]:
        """The slot and body of the next record of a kind."""
        while True:
            got, slot, body = await self.record()
            if got == kind:
                return slot, body

    async def away(self) -> int:
        """The code of the GOAWAY with which the connection ends."""
        _, body = await self.until(wire.GOAWAY)
        assert await asyncio.wait_for(self.reader.read(), PATIENCE) == b""
        return wire.decode_goaway(body)[0]

    def terms(self, index: int = 1, number: int = 1, window: int = 65536, **change: Any) -> bytes:
        assert self.worker is not None
        t = wire.Terms(b"F" * 16, self.worker.node, 1, index << 8, number, 0, window)
        secrets = self.secret + self.worker.own_secret
        for name, value in change.items():
            if name == "secrets":
                secrets = value
            else:
                setattr(t, name, value)
        return t.encode(secrets)

    def close(self) -> None:
        self.writer.close()


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs tests that are coroutines."""
    if not asyncio.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    asyncio.run(asyncio.wait_for(pyfuncitem.obj(**{n: pyfuncitem.funcargs[n] for n in names}), 5 * PATIENCE))
    return True
