"""Requests over NATS, with nats-py: the extra `nats`. A worker is a NATS micro service: `nats micro ls` shows it."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus, unquote_plus

from .wire import Code

if TYPE_CHECKING:
    from collections.abc import Callable

VERSION = "1"
_ANSWERS = {
    Code.BUSY: "busy", Code.DRAINING: "draining", Code.UNSUPPORTED: "unsupported", Code.NO_WORKER: "stale",
}  # fmt: skip


@dataclass(slots=True)
class Delivered:
    """A request as it came: its id, its terms, its payload."""

    id: str
    terms: bytes
    payload: bytes


class BadDeliveryError(ValueError):
    """A message that is no request, and the word that answers it."""

    def __init__(self, word: str, text: str) -> None:
        super().__init__(text)
        self.word = word


def decode(headers: dict[str, str], data: bytes) -> Delivered:
    version = headers.get("Laneway-Version", "")
    if version != VERSION:
        word = "unsupported" if version else "bad-request"
        raise BadDeliveryError(word, f"request version {version!r}, this worker reads {VERSION}")
    text = headers.get("Laneway-Terms", "")
    try:
        terms = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
        ident = unquote_plus(headers.get("Laneway-Id", ""), errors="strict")
    except (binascii.Error, UnicodeDecodeError) as err:
        raise BadDeliveryError("bad-request", f"the message's headers: {err}") from err
    return Delivered(ident, terms, data)


def reply(word: str, reason: str = "") -> dict[str, str]:
    headers = {"Laneway-Answer": word}
    if reason:
        headers["Laneway-Reason"] = quote_plus(reason.encode()[:1024])
    return headers


def word_for(code: Code) -> str:
    return _ANSWERS.get(code, "bad-request")


class Delivery:
    """One worker's endpoint. take gets each request and a function that answers it."""

    def __init__(self, client: Any, service: Any) -> None:
        self._client = client
        self._service = service

    @staticmethod
    async def start(
        url: str, namespace: str, record: dict[str, Any], take: Callable[[Delivered, Callable[..., Any]], None]
    ) -> Delivery:
        try:
            import nats
            from nats.micro import add_service
            from nats.micro.service import ServiceConfig
        except ImportError as err:
            raise ImportError("requests over NATS need nats-py: pip install 'laneway[nats]'") from err
        client = await nats.connect(url, max_reconnect_attempts=-1, pending_size=0)

        async def handle(request: Any) -> None:
            async def answer(word: str, reason: str = "") -> None:
                await request.respond(b"", headers=reply(word, reason))

            try:
                delivered = decode(dict(request.headers or {}), request.data)
            except BadDeliveryError as err:
                await answer(err.word, str(err))
                return
            take(delivered, answer)

        try:
            service = await add_service(
                client,
                ServiceConfig(
                    name=f"laneway-{namespace}", version="1.0.0",
                    description="Laneway workers: requests in, tokens over the response plane",
                    metadata={"namespace": namespace, "process": record["node"].get("name", "")},
                ),
            )
            await service.add_endpoint(
                name=record["id"], handler=handle, subject=f"laneway.{namespace}.worker.{record['id']}",
                metadata={"node": record["node"]["id"], "models": ",".join(record["models"])},
            )  # fmt: skip
            await client.flush()
        except BaseException:
            await client.close()
            raise
        return Delivery(client, service)

    async def withdraw(self) -> None:
        """Takes no more requests; what has come is still answered."""
        if self._service is not None:
            service, self._service = self._service, None
            await service.stop()

    async def close(self) -> None:
        await self.withdraw()
        await self._client.close()
