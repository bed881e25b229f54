"""An engine in 40 lines: an async generator for each request, whose events reach the client through the frontend.

    python examples/echo.py etcd-host:2379 nats://nats-host:4222
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator

import laneway


def chunk(request: laneway.Request, text: str | None, finish: str | None = None) -> bytes:
    delta = {"content": text} if text is not None else {}
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    body = {"id": request.id, "object": "chat.completion.chunk", "model": request.model, "choices": [choice]}
    return b"data: " + json.dumps(body).encode()


async def engine(request: laneway.Request) -> AsyncIterator[bytes]:
    """Says the last message again, word by word. It is closed when the client leaves."""
    words = str(request.json()["messages"][-1]["content"]).split()
    for word in words:
        await asyncio.sleep(0.02)  # here an engine would think
        yield chunk(request, word + " ")
    yield chunk(request, None, "stop")
    yield b"data: [DONE]"


if __name__ == "__main__":
    etcd, nats = sys.argv[1:3]
    asyncio.run(laneway.serve(engine, namespace="default", model="echo", etcd=etcd, nats=nats))
