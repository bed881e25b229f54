"""The worker with a real etcd and a real NATS server."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
import subprocess
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import nats as natsio
import pytest
from conftest import PATIENCE, Scripted
from test_worker import payload, records

from laneway import Config, EndType, Worker
from laneway.etcd import EtcdError, _post

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def devservers() -> str:
    out = os.environ.get("LANEWAY_DEVSERVERS", "")
    if not out:
        out = str(Path(tempfile.mkdtemp()) / "devservers")
        env = {**os.environ, "GOWORK": "off"}
        subprocess.run(["go", "build", "-o", out, "."], cwd=ROOT / "devservers", env=env, check=True)
    return out


class Server:
    """A server of devservers, as a child process that ends with its standard input."""

    def __init__(self, binary: str, which: str) -> None:
        pipe = subprocess.PIPE
        # etcd's gateway dials what it was told to listen on, so that must be a port.
        port = socket.create_server(("127.0.0.1", 0)).getsockname()[1]
        self.process = subprocess.Popen([binary, which, "--listen", f"127.0.0.1:{port}"], stdin=pipe, stdout=pipe)
        assert self.process.stdout is not None
        self.ready: dict[str, Any] = json.loads(self.process.stdout.readline())

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


async def until(what: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE) if hasattr(asyncio, "timeout") else _nothing():
        while not await what():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


class _nothing:
    async def __aenter__(self) -> None: ...
    async def __aexit__(self, *_: object) -> None: ...


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


async def test_etcd(devservers: str) -> None:
    server = Server(devservers, "etcd")
    endpoint = server.ready["endpoints"][0]
    key = {"key": b64("/laneway/v1/prod/workers/w1")}

    async def kv() -> list[dict[str, str]]:
        return (await _post(endpoint, "/v3/kv/range", key)).get("kvs", [])  # type: ignore[no-any-return]

    async def there() -> bool:
        return bool(await kv())

    config = Config(planes=("tcp",), host="127.0.0.1")
    worker = await Worker.start(namespace="prod", model=["m", "n"], etcd=endpoint, worker_id="w1", config=config)
    try:
        (found,) = await kv()
        record = json.loads(base64.b64decode(found["value"]))
        assert record == worker.record() and record["models"] == ["m", "n"] and record["schema"] == 1
        with pytest.raises(EtcdError, match="taken"):
            await Worker.start(namespace="prod", etcd=endpoint, worker_id="w1", config=Config(planes=("tcp",)))
        await _post(endpoint, "/v3/lease/revoke", {"ID": found["lease"]})
        assert not await kv()
        await until(there)  # put back
        await worker.drain(0)
        assert not await kv()
    finally:
        await worker.close()
        server.close()


async def test_etcd_that_is_not_there() -> None:
    with pytest.raises(EtcdError):
        await Worker.start(etcd="127.0.0.1:1", config=Config(planes=("tcp",), host="127.0.0.1"))


async def test_nats(devservers: str) -> None:
    server = Server(devservers, "nats")
    url = server.ready["url"]
    config = Config(planes=("tcp",), host="127.0.0.1")
    worker = await Worker.start(namespace="prod", model="m", nats=url, worker_id="w1", config=config)
    client = await natsio.connect(url)
    f = await Scripted.dial(worker.node)
    try:
        await f.greet()

        async def ask(**change: str) -> Any:
            terms = base64.b64encode(f.terms()).decode().rstrip("=")
            headers = {"Laneway-Version": "1", "Laneway-Id": "r+1", "Laneway-Terms": terms, **change}
            return await client.request("laneway.prod.worker.w1", payload(), timeout=PATIENCE, headers=headers)

        answer = asyncio.create_task(ask())
        request = await asyncio.wait_for(anext(worker.requests()), PATIENCE)
        writer = request.accept()
        assert (await answer).headers["Laneway-Answer"] == "accepted"
        writer.put_last(b"data: [DONE]")
        writer.complete()
        got, end = await records(f)
        assert len(got) == 1 and end.type is EndType.COMPLETE
        answer = asyncio.create_task(ask())
        request = await asyncio.wait_for(anext(worker.requests()), PATIENCE)
        with pytest.raises(Exception, match="twice"):
            request.accept()
        headers = (await answer).headers
        assert headers["Laneway-Answer"] == "stale" and "twice" in headers["Laneway-Reason"]
        for change, word in (
            ({"Laneway-Version": "2"}, "unsupported"),
            ({"Laneway-Version": ""}, "bad-request"),
            ({"Laneway-Terms": "%"}, "bad-request"),
        ):
            assert (await ask(**change)).headers["Laneway-Answer"] == word, change
        info = json.loads((await client.request("$SRV.INFO.laneway-prod", b"", timeout=PATIENCE)).data)
        assert info["endpoints"][0]["name"] == "w1"
        assert info["endpoints"][0]["subject"] == "laneway.prod.worker.w1"
        await worker.drain(0)
        with pytest.raises(natsio.errors.NoRespondersError):
            await ask()
    finally:
        f.close()
        await client.close()
        await worker.close()
        server.close()
