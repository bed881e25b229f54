"""Registration in etcd: one lease, kept alive, and the record put back after a loss.

It speaks etcd's own JSON gateway (`/v3/...`, on the client port of every etcd) over plain HTTP: three calls of a
few lines each. The Python clients of etcd are unmaintained or bring gRPC, a compiled package.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import random
import ssl
from typing import Any, Final
from urllib.parse import urlsplit

_TIMEOUT: Final = 5.0
_MOST: Final = 1 << 20
_log: Final = logging.getLogger("laneway")


class EtcdError(OSError):
    """etcd cannot be reached, or says no."""


class Registration:
    """Keeps one key in etcd for as long as the process lives."""

    def __init__(self, endpoints: str, key: str, value: bytes, ttl: int = 10) -> None:
        self._endpoints = [e if "://" in e else f"http://{e}" for e in endpoints.split(",")]
        self._key = base64.b64encode(key.encode()).decode()
        self._value = base64.b64encode(value).decode()
        self._ttl = ttl
        self._lease: str | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Registers, or raises EtcdError; then keeps it."""
        await self._put()
        self._task = asyncio.create_task(self._keep())

    async def close(self) -> None:
        """Takes the key away."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        if self._lease is not None:
            with contextlib.suppress(OSError, asyncio.TimeoutError):
                await self._call("/v3/lease/revoke", {"ID": self._lease})
            self._lease = None

    async def _put(self) -> None:
        lease = str((await self._call("/v3/lease/grant", {"TTL": self._ttl}))["ID"])
        # The key must not be another process's: it is created, or is this one's own of an earlier lease.
        create: dict[str, Any] = {"key": self._key, "target": "CREATE", "create_revision": "0", "result": "EQUAL"}
        same = {"key": self._key, "target": "VALUE", "value": self._value, "result": "EQUAL"}
        put = {"request_put": {"key": self._key, "value": self._value, "lease": lease}}
        for compare in (create, same):
            if (await self._call("/v3/kv/txn", {"compare": [compare], "success": [put]})).get("succeeded"):
                self._lease = lease
                return
        with contextlib.suppress(OSError):
            await self._call("/v3/lease/revoke", {"ID": lease})
        raise EtcdError("the worker id is taken by another process")

    async def _keep(self) -> None:
        delay = 0.0
        while True:
            await asyncio.sleep(delay or self._ttl / 3)
            try:
                if self._lease is not None:
                    answer = await self._call("/v3/lease/keepalive", {"ID": self._lease})
                    if int(answer.get("result", {}).get("TTL", 0)) > 0:
                        delay = 0.0
                        continue
                    self._lease = None
                    _log.warning("etcd: the lease was lost; the record is put back")
                await self._put()
                delay = 0.0
                _log.info("etcd: the record is back")
            except (OSError, asyncio.TimeoutError, ValueError, KeyError) as err:
                delay = min(max(delay * 2, 0.2), 5.0) * random.uniform(0.8, 1.2)
                _log.warning("etcd: %s; tried again in %.1f s", err or "no answer", delay)

    async def _call(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        errors = []
        for endpoint in self._endpoints:
            try:
                return await asyncio.wait_for(_post(endpoint, path, body), _TIMEOUT)
            except (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError, ValueError) as err:
                errors.append(f"{endpoint}: {err or 'no answer'}")
        raise EtcdError("; ".join(errors))


async def _post(endpoint: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
    url = urlsplit(endpoint)
    secure = ssl.create_default_context() if url.scheme == "https" else None
    host, port = url.hostname or "127.0.0.1", url.port or 2379
    raw = json.dumps(body).encode()
    reader, writer = await asyncio.open_connection(host, port, ssl=secure)
    try:
        head = f"POST {path} HTTP/1.0\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(raw)}\r\n\r\n".encode() + raw)
        status = (await reader.readline()).split(b" ")
        size = -1
        while (line := await reader.readline()) not in (b"\r\n", b""):
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                size = int(value)
        # A keep-alive is a stream of answers, of which this is the first line.
        answer = await (reader.readexactly(min(size, _MOST)) if size >= 0 else reader.readline())
        if len(status) < 2 or status[1] != b"200":
            raise EtcdError(f"{path}: {answer[:200].decode('utf-8', 'replace')}")
        decoded = json.loads(answer)
        if not isinstance(decoded, dict):
            raise EtcdError(f"{path}: no object")
        return decoded
    finally:
        writer.close()
