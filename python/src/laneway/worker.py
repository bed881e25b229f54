"""The worker that an engine uses: requests come in, events go out."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import os
import socket
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from . import serving
from .delivery import Delivered, Delivery, word_for
from .errors import Refused
from .etcd import Registration
from .node import Config, Node
from .serving import Encoder, MalformedError, RequestHead
from .wire import Code, End, EndType, is_open_terms

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from .stream import Stream

_WAITING: Final = 1024  # requests that nobody has taken yet; one more is busy
_FAILED: Final = {"internal": Code.INTERNAL, "validation": Code.VALIDATION, "not_found": Code.NOT_FOUND}
_REFUSED: Final = {"busy": Code.BUSY, "draining": Code.DRAINING, "bad-request": Code.BAD_REQUEST}


class Writer:
    """One answer. put never waits, send does; one of complete, fail and stopped ends it."""

    __slots__ = ("_encoder", "_plain", "_stream", "_worker")

    def __init__(self, worker: Worker, stream: Stream) -> None:
        self._worker = worker
        self._stream = stream
        self._encoder = Encoder(worker.delta)
        self._plain = False

    def head(self, status: int = 200, headers: dict[str, str] | None = None) -> None:
        """Sets status and headers of the answer, before anything is put; without it, 200 and an event stream."""
        self._encoder.head(status, headers or {"content-type": "text/event-stream"})

    def put(self, event: bytes) -> bool:
        """Queues an event, all its lines without the blank one. False: the window is full, or the answer has ended."""
        if self._plain:
            return self._stream.put(b"\x02" + event)
        return self._put(serving.EVENT, event)

    def put_last(self, event: bytes) -> bool:
        """Queues the event after which nothing comes, as `data: [DONE]`."""
        return self._put(serving.LAST, event)

    def put_body(self, part: bytes) -> bool:
        """Queues a piece of an answer that is no event stream."""
        return self._put(serving.BODY, part)

    def _put(self, kind: int, data: bytes) -> bool:
        if self._stream.put(self._encoder.record(kind, data)):
            self._encoder.taken(kind, data)
            self._plain = not self._worker.delta  # what follows needs no head
            return True
        return False

    async def send(self, event: bytes, *, last: bool = False, body: bool = False) -> bool:
        """Queues an event, waits while the window is full, and has it flushed soon. False: the answer has ended."""
        kind = serving.LAST if last else serving.BODY if body else serving.EVENT
        while not self._put(kind, event):
            if not await self._stream.room():
                return False
        self._worker.flush_soon()
        return True

    def complete(self, usage: tuple[int, int] | None = None, finish: list[str] | None = None) -> bool:
        """Ends the answer: all of it was put. usage is the number of prompt and completion tokens."""
        return self._finish(End(EndType.COMPLETE, trailer=serving.trailer(usage, finish)))

    def stopped(self, usage: tuple[int, int] | None = None) -> bool:
        """Ends an answer early because it was asked to stop."""
        return self._finish(End(EndType.STOPPED, trailer=serving.trailer(usage)))

    def fail(self, text: str, *, kind: str = "internal", retryable: bool = False) -> bool:
        """Ends an answer that cannot be completed. kind: internal, validation (the request is at fault), not_found."""
        return self._finish(End(EndType.FAILED, _FAILED[kind], text, retryable=retryable))

    def _finish(self, end: End) -> bool:
        ended = self._stream.finish(end)
        self._worker.flush_soon()
        return ended

    @property
    def end(self) -> End | None:
        """How the answer ended; None while it is open."""
        return self._stream.end

    @property
    def cancelled(self) -> asyncio.Event:
        """Set when nobody wants the rest."""
        return self._stream.cancelled

    @property
    def is_cancelled(self) -> bool:
        return self._stream.is_cancelled

    def on_cancel(self, callback: Callable[[], None]) -> None:
        """Has the loop call the callback when nobody wants the rest."""
        self._stream.on_cancel(callback)


class Request:
    """A client's request. accept or refuse it: the frontend waits 2 s for either."""

    __slots__ = ("_answer", "_done", "_terms", "_worker", "body", "headers", "id", "method", "model", "path", "stream")

    def __init__(self, worker: Worker, head: RequestHead, terms: bytes, answer: Callable[..., Any] | None) -> None:
        self._worker = worker
        self._terms = terms
        self._answer = answer
        self._done = False
        self.id = head.id
        self.method = head.method
        self.path = head.path
        self.model = head.model
        self.stream = head.stream
        self.headers = head.headers
        self.body = head.body

    def json(self) -> Any:
        return json.loads(self.body)

    def accept(self) -> Writer:
        """Takes the request. Raises Refused when its terms do not hold any more; the frontend knows then, too."""
        try:
            stream = self._worker.node.attach(self._terms)
        except Refused as err:
            self._reply(word_for(err.code), err.text)
            raise
        self._reply("accepted")
        return Writer(self._worker, stream)

    async def claim(self) -> Writer:
        """Takes a request that came with open terms: one round trip to its frontend."""
        try:
            stream = await self._worker.node.claim(self._terms)
        except Refused as err:
            self._reply(word_for(err.code), err.text)
            raise
        self._reply("accepted")
        return Writer(self._worker, stream)

    @property
    def is_open(self) -> bool:
        """Says whether the terms are open ones: use claim, not accept."""
        return is_open_terms(self._terms)

    def refuse(self, word: str = "busy", reason: str = "") -> None:
        """Does not take the request: busy, draining or bad-request. The frontend tries another worker, or says so."""
        if word not in _REFUSED:
            raise ValueError(f"{word!r} is none of {sorted(_REFUSED)}")
        self._reply(word, reason)

    def _reply(self, word: str, reason: str = "") -> None:
        if self._done:
            return
        self._done = True
        if self._answer is not None:
            self._worker.spawn(self._answer(word, reason))


class Worker:
    """An engine's place in the plane."""

    def __init__(self, node: Node, namespace: str, model: str | list[str], worker_id: str, max_running: int) -> None:
        self.node = node
        self.namespace = namespace
        self.models = [model] if isinstance(model, str) else list(model)
        self.id = worker_id
        self.max_running = max_running
        self.delta = False  # events as differences: a third of the bytes, twice the CPU of a record
        self.log = logging.getLogger("laneway")
        self._requests: asyncio.Queue[Request | None] = asyncio.Queue(_WAITING + 1)
        self._registration: Registration | None = None
        self._delivery: Delivery | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    @staticmethod
    async def start(
        *,
        namespace: str = "default",
        model: str | list[str] = "model",
        etcd: str = "",
        nats: str = "",
        worker_id: str = "",
        max_running: int = 0,
        delta: bool = False,
        config: Config | None = None,
    ) -> Worker:
        """Listens, and then registers: in etcd, and for requests over NATS, each where it is given.

        delta: events go as their difference from the one before. It saves bytes, and costs CPU.
        """
        config = config or Config()
        config.name = config.name or f"{socket.gethostname()}-{os.getpid()}"
        node = Node(config)
        worker = Worker(node, namespace, model, worker_id or f"py-{node.identity.id.hex()[:12]}", max_running)
        worker.delta = delta
        await node.listen()
        try:
            record = worker.record()
            if nats:
                worker._delivery = await Delivery.start(nats, namespace, record, worker._take)
            if etcd:
                key = f"/laneway/v1/{namespace}/workers/{worker.id}"
                worker._registration = Registration(etcd, key, json.dumps(record).encode())
                await worker._registration.start()
        except BaseException:
            await worker.close()
            raise
        return worker

    def record(self) -> dict[str, Any]:
        """The worker's record, as it stands in a registry."""
        record: dict[str, Any] = {"schema": 1, "id": self.id, "models": self.models, "node": self.node.descriptor()}
        if self.max_running:
            record["max_running"] = self.max_running
        return record

    def _take(self, delivered: Delivered, answer: Callable[..., Any] | None) -> None:
        try:
            head = RequestHead.decode(delivered.payload)
        except MalformedError as err:
            word = "unsupported" if delivered.payload[:1] != b"\x01" else "bad-request"
            if answer is not None:
                self.spawn(answer(word, str(err)))
            return
        request = Request(self, head, delivered.terms, answer)
        if self._requests.qsize() >= _WAITING:
            request.refuse("busy", f"{_WAITING} requests wait")
            return
        self._requests.put_nowait(request)

    def offer(self, terms: bytes, payload: bytes, answer: Callable[..., Any] | None = None) -> None:
        """Takes a request that came on a path of your own: its terms and its payload as docs/serving.md has it. answer,
        where it is given, is a coroutine function that gets a word and a reason."""
        self._take(Delivered("", terms, payload), answer)

    async def requests(self) -> AsyncIterator[Request]:
        """The requests, until the worker drains."""
        while (request := await self._requests.get()) is not None:
            yield request

    def flush(self) -> None:
        """Writes what all writers have put: once a pass."""
        self.node.flush()

    def flush_soon(self) -> None:
        self.node.flush_soon()

    def call(self, function: Callable[..., object], *args: Any) -> None:
        """Has the loop call a function, from any thread; then everything is flushed."""
        self.node.call(function, *args)

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = self.node.loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._spawned)
        return task

    def _spawned(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (err := task.exception()) is not None:
            self.log.error("a task has failed", exc_info=err)

    async def drain(self, timeout: float | None = None) -> bool:
        """Withdraws, refuses what still comes, and waits for what is open. False: the time was over."""
        if self._registration is not None:
            await self._registration.close()
            self._registration = None
        drained = await self.node.drain(timeout)
        if self._delivery is not None:
            await self._delivery.withdraw()
        while not self._requests.empty():
            if (request := self._requests.get_nowait()) is not None:
                request.refuse("draining")
        self._requests.put_nowait(None)
        return drained

    async def close(self) -> None:
        """Ends everything that is open as lost."""
        if self._registration is not None:
            await self._registration.close()
        await self.node.close()
        if self._delivery is not None:
            await self._delivery.close()
        for task in list(self._tasks):
            task.cancel()
        if self._requests.empty():
            self._requests.put_nowait(None)


Handler: TypeAlias = "Callable[[Request], AsyncIterator[bytes]]"


async def serve(handler: Handler, *, worker: Worker | None = None, **start: Any) -> None:
    """Runs an async generator for each request: it yields events, and when it returns the answer is complete. For a
    path whose streams end with an event (`data: [DONE]`), that event is put as the last one. A generator is closed when
    nobody wants the rest, and one that raises ends its answer as failed. start is what Worker.start takes."""
    worker = worker or await Worker.start(**start)
    try:
        async for request in worker.requests():
            if worker.max_running and len(worker._tasks) >= worker.max_running:
                request.refuse("busy")
                continue
            worker.spawn(_run(handler, request))
    finally:
        await worker.close()


def _cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()


async def _run(handler: Handler, request: Request) -> None:
    try:
        writer = await request.claim() if request.is_open else request.accept()
    except Refused:
        return
    task = asyncio.current_task()
    assert task is not None
    writer.on_cancel(partial(_cancel, task))
    events = handler(request)
    try:
        async for event in events:
            if not await writer.send(event, last=event == b"data: [DONE]"):
                return
        writer.complete()
    except asyncio.CancelledError:
        if not writer.is_cancelled:
            raise
        writer.stopped()
    except Exception as err:
        writer.fail(f"{type(err).__name__}: {err}")
        logging.getLogger("laneway").exception("the handler of request %s has failed", request.id)
    finally:
        if inspect.isasyncgen(events):
            await events.aclose()
