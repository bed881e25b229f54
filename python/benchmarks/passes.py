"""CPU a record of an engine in Python: 1,024 open responses, a pass each 20 ms that gives 128 of them a record.

    python benchmarks/passes.py lanes FRONTEND [tls|tcp]   # FRONTEND: go build ./python/tests/interop
    python benchmarks/passes.py events FRONTEND [tls|tcp] [delta]  # the same events through Worker; third word delta
    python benchmarks/passes.py uvicorn                    # the same engine answering by its own SSE server

What is printed is of this process: the engine and what carries its records away, without the consumer.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

STREAMS, A_PASS, EVERY, SECONDS, WARM = 1024, 128, 0.02, 15.0, 2.0
PATTERN = (
    'data: {"id":"chatcmpl-1f0c","object":"chat.completion.chunk","created":1764576000,"model":"m",'
    '"choices":[{"index":0,"delta":{"content":" token %06d"},"logprobs":null,"finish_reason":null}]}'
)


async def passes(put: Callable[[int, int], object], flush: Callable[[], None]) -> None:
    """The engine: its passes keep their times, and one that begins 5 ms late is counted."""
    loop = asyncio.get_running_loop()
    begin = due = loop.time()
    late = records = n = refused = 0
    cpu = wall = 0.0
    while due - begin < WARM + SECONDS:
        if cpu == 0.0 and due - begin >= WARM:
            cpu, wall, late, records = time.process_time(), loop.time(), 0, 0
        for k in range(A_PASS):
            refused += put((n * A_PASS + k) % STREAMS, n) is False
        flush()
        records += A_PASS
        n += 1
        due += EVERY
        late += loop.time() > due + 0.005
        await asyncio.sleep(max(due - loop.time(), 0))
    used = time.process_time() - cpu
    print(
        f"{records} records in {loop.time() - wall:.1f} s: {used / records * 1e6:.2f} us CPU a record, "
        f"{used / (loop.time() - wall) * 100:.1f}% of a core, {late} passes late, {refused} not taken"
    )


async def lanes(binary: str, plane: str) -> None:
    from conftest import RealFrontend

    from laneway import Config, Node

    node = Node(Config(planes=(plane,), host="127.0.0.1"))
    await node.listen()
    frontend = await RealFrontend.start(binary, node.descriptor(), "-plane", plane)
    frontend.say(f"mint {STREAMS}")
    streams = [node.attach((await frontend.next_terms())[1]) for _ in range(STREAMS)]
    record = (PATTERN % 0).encode()
    await passes(lambda i, n: streams[i].put(record), node.flush)
    frontend.process.kill()
    await node.close()


async def events(binary: str, plane: str, delta: bool) -> None:
    from conftest import RealFrontend

    from laneway import Config, Worker, serving

    worker = await Worker.start(delta=delta, config=Config(planes=(plane,), host="127.0.0.1"))
    frontend = await RealFrontend.start(binary, worker.node.descriptor(), "-plane", plane)
    frontend.say(f"mint {STREAMS}")
    payload = serving.RequestHead("r", "POST", "/v1/chat/completions", "m", True).encode()
    writers = []
    requests = worker.requests()
    for _ in range(STREAMS):
        worker.offer((await frontend.next_terms())[1], payload)
        writers.append((await requests.__anext__()).accept())
    await passes(lambda i, n: writers[i].put((PATTERN % n).encode()), worker.flush)
    frontend.process.kill()
    await worker.close()


def consumer(port: int) -> None:
    """1,024 clients of the SSE server."""

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        while await reader.read(1 << 16):
            pass

    async def run() -> None:
        await asyncio.gather(*(client() for _ in range(STREAMS)), return_exceptions=True)

    asyncio.run(run())


async def uvicorn() -> None:
    import uvicorn as server

    queues: list[asyncio.Queue[bytes]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        queue: asyncio.Queue[bytes] = asyncio.Queue()

        async def generate() -> AsyncIterator[bytes]:
            while True:
                yield await queue.get()

        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        queues.append(queue)
        async for event in generate():
            await send({"type": "http.response.body", "body": event, "more_body": True})

    config = server.Config(app, port=18432, log_level="error", lifespan="off", http="httptools", loop="asyncio")
    running = server.Server(config)
    task = asyncio.create_task(running.serve())
    while not running.started:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    clients = multiprocessing.get_context("spawn").Process(target=consumer, args=(18432,))
    clients.start()
    while len(queues) < STREAMS:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    await passes(lambda i, n: queues[i].put_nowait((PATTERN % n).encode() + b"\n\n"), lambda: None)
    clients.kill()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    plane = rest[1] if len(rest) > 1 else "tls"
    if what == "uvicorn":
        asyncio.run(uvicorn())
    elif what == "lanes":
        asyncio.run(lanes(rest[0], plane))
    else:
        asyncio.run(events(rest[0], plane, "delta" in rest))
