"""Requests in, events out: the worker as an engine uses it, against a scripted frontend."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from conftest import PATIENCE, Scripted

from laneway import Config, EndType, Request, Worker, serve, serving, wire

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
import echo
import vllm_shape


def payload(path: str = "/v1/chat/completions", body: bytes = b"{}") -> bytes:
    return serving.RequestHead("r1", "POST", path, "m", True, {}, body).encode()


async def start(delta: bool = False) -> tuple[Worker, Scripted]:
    worker = await Worker.start(model="m", delta=delta, config=Config(planes=("tcp",), host="127.0.0.1"))
    f = await Scripted.dial(worker.node)
    await f.greet()
    return worker, f


async def records(f: Scripted) -> tuple[list[bytes], wire.End]:
    got = []
    while True:
        kind, _, body = await f.record()
        if kind == wire.DATA:
            got.append(body)
        elif kind == wire.END:
            return got, wire.End.decode(body)


class Answers:
    def __init__(self) -> None:
        self.words: list[str] = []
        self.came = asyncio.Event()

    async def __call__(self, word: str, reason: str = "") -> None:
        self.words.append(word)
        self.came.set()


@pytest.mark.parametrize("delta", [False, True])
async def test_passes(delta: bool) -> None:
    worker, f = await start(delta)
    answers = Answers()
    worker.offer(f.terms(), payload(body=b'{"a": 1}'), answers)
    requests = worker.requests()
    request = await anext(requests)
    assert (request.id, request.model, request.json()) == ("r1", "m", {"a": 1})
    writer = request.accept()
    for n in range(3):
        assert writer.put(b"data: token %d and what is the same" % n)
        worker.flush()
    assert writer.put_last(b"data: [DONE]") and writer.complete(usage=(3, 4), finish=["stop"])
    got, end = await records(f)
    assert got[0].startswith(b"\x01\x00\xc8\x01\x0ccontent-type")
    assert got[0].endswith(b"\x02data: token 0 and what is the same")
    assert [g[0] for g in got[1:]] == [*2 * [serving.DELTA if delta else serving.EVENT], serving.LAST]
    assert (end.type, end.records, end.trailer) == (EndType.COMPLETE, 4, serving.trailer((3, 4), ["stop"]))
    await asyncio.wait_for(answers.came.wait(), PATIENCE)
    assert answers.words == ["accepted"]
    await worker.close()
    f.close()


async def test_refusals() -> None:
    worker, f = await start()
    answers = Answers()
    requests = worker.requests()
    worker.offer(f.terms(), b"{", answers)
    worker.offer(f.terms(), payload()[:-4], answers)
    worker.offer(f.terms(), payload(), answers)
    (await anext(requests)).refuse("busy")
    worker.offer(f.terms(secrets=bytes(32)), payload(), answers)
    with pytest.raises(Exception, match="key"):
        (await anext(requests)).accept()
    while len(answers.words) < 3:
        answers.came.clear()
        await asyncio.wait_for(answers.came.wait(), PATIENCE)
    await asyncio.sleep(0)
    assert answers.words[0] == "unsupported" and answers.words[-2:] == ["busy", "stale"]
    await worker.close()
    f.close()


async def run_handler(handler: Any, body: bytes) -> tuple[list[bytes], wire.End]:
    worker, f = await start()
    task = asyncio.create_task(serve(handler, worker=worker))
    worker.offer(f.terms(), payload(body=body))
    out = await records(f)
    await worker.drain(0)
    await asyncio.wait_for(task, PATIENCE)
    f.close()
    return out


async def test_serve() -> None:
    got, end = await run_handler(echo.engine, b'{"messages": [{"content": "one two three"}]}')
    assert end.type is EndType.COMPLETE and len(got) == 5 and got[-1] == b"\x05data: [DONE]"


async def test_a_handler_that_fails() -> None:
    async def broken(request: Request) -> AsyncIterator[bytes]:
        yield b"data: 1"
        raise RuntimeError("no memory")

    got, end = await run_handler(broken, b"{}")
    assert len(got) == 1 and end.type is EndType.FAILED and "no memory" in end.text


async def test_a_client_that_leaves() -> None:
    closed = asyncio.Event()

    async def endless(request: Request) -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"data: x"
                await asyncio.sleep(0.001)
        finally:
            closed.set()

    worker, f = await start()
    task = asyncio.create_task(serve(endless, worker=worker))
    worker.offer(f.terms(), payload())
    await f.until(wire.DATA)
    f.writer.write(wire.encode_kill(1 << 8, 1, wire.EndType.KILLED))
    await f.until(wire.END)
    await asyncio.wait_for(closed.wait(), PATIENCE)
    await worker.drain(0)
    await asyncio.wait_for(task, PATIENCE)
    f.close()


async def test_another_thread() -> None:
    """An engine's callback on its own thread: calls keep their order, and all of them arrive."""
    worker, f = await start()
    worker.offer(f.terms(window=1 << 20), payload())
    writer = (await anext(worker.requests())).accept()

    def engine() -> None:
        for n in range(500):
            worker.call(writer.put_body, b"%d" % n)
        worker.call(writer.complete)

    thread = threading.Thread(target=engine)
    thread.start()
    got, end = await records(f)
    thread.join()
    assert [g.rpartition(b"\x04")[2] for g in got] == [b"%d" % n for n in range(500)]
    assert end.type is EndType.COMPLETE
    await worker.close()
    f.close()


class StandIn:
    """AsyncLLM's generate, with vLLM's names."""

    def __init__(self) -> None:
        self.aborted = 0

    async def generate(self, prompt: str, sampling_params: Any, request_id: str) -> AsyncIterator[Any]:
        finished = False
        try:
            for n, text in enumerate(prompt.split()[: sampling_params.max_tokens]):
                choice = Plain(index=0, text=text, finish_reason=None if n else "length")
                yield Plain(request_id=request_id, outputs=[choice], finished=False)
            finished = True
        finally:
            self.aborted += not finished


class Plain:
    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


async def test_the_shape_of_vllm() -> None:
    engine = StandIn()
    got, end = await run_handler(vllm_shape.handler(engine, Plain, "delta"), b'{"prompt": "a b c", "max_tokens": 2}')
    assert len(got) == 3 and end.type is EndType.COMPLETE and not engine.aborted
