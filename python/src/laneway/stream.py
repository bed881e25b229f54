"""A stream: one response, written by an engine."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

from .wire import DATA, DATA_MORE, HEADER, HEADER_SIZE, MAX_DATA, End, EndType, encode_open

if TYPE_CHECKING:
    from collections.abc import Callable

    from .lane import Lane
    from .wire import Terms

URGENT_FIRST: Final = 4 << 10
FAIR_SHARE: Final = 16 << 10
MAX_RECORD: Final = 16 << 20  # the frontend's own bound may be lower
_DATA: Final = DATA << 24
_MORE: Final = DATA_MORE << 24


class Stream:
    """One response. put never waits; end says how it ended, for whatever reason. Use it on the loop's thread only."""

    __slots__ = (
        "_callbacks", "_cancelled", "_closing", "_epoch", "_held", "_parts", "_timer", "_unsent", "_wakers", "begun",
        "consumed", "end", "key", "lane", "limit", "most", "number", "payload", "records", "sent", "settled", "slot",
        "stop_requested", "window",
    )  # fmt: skip

    def __init__(self, lane: Lane, terms: Terms) -> None:
        self.lane = lane
        self.slot = terms.slot
        self.number = terms.number
        self.key = terms.key
        self.window = terms.window
        self.limit = terms.window  # of what may have been sent, consumed + window
        self.most = min(MAX_DATA, terms.window // 2)  # of a DATA, header included
        self.sent = self.consumed = self.records = self.payload = 0
        self.begun = False  # OPEN is in the string
        self.settled = False  # END is queued
        self.end: End | None = None
        self.stop_requested = False
        self._held: deque[bytes] | None = None  # whole records that wait for their turn or for the window
        self._parts: deque[bytes] | None = None  # fragments of one record that wait for the window
        self._closing: End | None = None  # END, behind them
        self._unsent = 0
        self._epoch = -1
        self._timer: asyncio.TimerHandle | None = None
        self._cancelled: asyncio.Event | None = None
        self._callbacks: list[Callable[[], None]] | None = None
        self._wakers: deque[asyncio.Future[None]] | None = None

    def put(self, record: bytes) -> bool:
        """Queues a record for the next flush. False: the window is full, or the stream has ended (end says so)."""
        size = HEADER_SIZE + len(record)
        if self.end is not None or self._parts is not None:
            return False
        if size > self.most:
            return self._fragments(record)
        sent = self.sent + size
        if sent > self.limit:
            return False
        self.sent = sent
        self.records += 1
        self.payload += size - HEADER_SIZE
        item = HEADER.pack(_DATA | size - HEADER_SIZE, self.slot) + record
        lane = self.lane
        if self._epoch != lane.epoch and self.begun and self._held is None:
            # Nothing of this stream is unsent, which is so at nearly every token: _queue says the same in more steps.
            self._epoch, self._unsent = lane.epoch, size
            lane.add(item)
        else:
            self._queue(item)
        return True

    def _fragments(self, record: bytes) -> bool:
        """Takes a long record if the window has room for its first fragment. The others follow as the window opens:
        up to half a window may stay unreported, so who waits for room for all of them may wait for ever."""
        if len(record) > MAX_RECORD:
            raise ValueError(f"a record of {len(record)} bytes, at most {MAX_RECORD} are allowed")
        if self.sent + self.most > self.limit:
            return False
        self.records += 1
        self.payload += len(record)
        step = self.most - HEADER_SIZE
        self._parts = deque()
        for at in range(0, len(record), step):
            part = record[at : at + step]
            kind = _MORE if at + step < len(record) else _DATA
            self._parts.append(HEADER.pack(kind | len(part), self.slot) + part)
        self._more()
        return True

    def _more(self) -> None:
        """Queues the fragments that the window has room for, and END behind the last one."""
        parts = self._parts
        while parts and self.sent + len(parts[0]) <= self.limit:
            self.sent += len(parts[0])
            self._queue(parts.popleft())
        if not parts:
            self._parts = None
            if self._closing is not None:
                self._put_end(self._closing)

    def _queue(self, item: bytes) -> None:
        lane = self.lane
        if not self.begun:
            self.begun = True
            opening = encode_open(self.slot, self.number, self.key)
            if len(item) <= URGENT_FIRST and item[0] == DATA:
                lane.add_urgent(opening + item)
                return
            lane.add(opening)
        if self._held is not None:
            self._held.append(item)
            return
        if self._epoch != lane.epoch:
            self._epoch, self._unsent = lane.epoch, 0
        if self._unsent >= FAIR_SHARE:
            self._held = deque((item,))
            lane.wait(self)
            return
        self._unsent += len(item)
        lane.add(item)

    def turn(self) -> bool:
        """Moves a share of what is held, or one longer record, to the lane. True: more is held."""
        held, taken = self._held, 0
        while held and (not taken or taken + len(held[0]) <= FAIR_SHARE):
            item = held.popleft()
            taken += len(item)
            self.lane.add(item)
        self._epoch, self._unsent = self.lane.epoch, taken
        if held:
            return True
        self._held = None
        return False

    async def send(self, record: bytes) -> bool:
        """Queues a record, waits while the window is full, and has it flushed soon. False: the stream has ended."""
        while not self.put(record):
            if not await self.room():
                return False
        self.lane.flush_soon()
        return True

    async def room(self) -> bool:
        """Waits until the window has changed. False: the stream has ended."""
        if self.end is not None:
            return False
        waker = asyncio.get_running_loop().create_future()
        if self._wakers is None:
            self._wakers = deque()
        self._wakers.append(waker)
        self.lane.flush()
        await waker
        return self.end is None

    def finish(self, end: End) -> bool:
        """Ends the stream. False: it had ended before."""
        if self.end is not None:
            return False
        if len(end.trailer) > 16 << 10:
            raise ValueError(f"a trailer of {len(end.trailer)} bytes, at most {16 << 10} are allowed")
        self._over(end)
        if self._parts is None:
            self._put_end(end)
        else:
            self._closing = end
        return True

    def _put_end(self, end: End) -> None:
        self.settled = True
        end.number, end.records, end.size = self.number, self.records, self.payload
        item = end.encode(self.slot)
        if not self.begun and end.type in (EndType.COMPLETE, EndType.FAILED, EndType.STOPPED):
            self.begun = True
            self.lane.add_urgent(encode_open(self.slot, self.number, self.key))
            self.lane.add_urgent(item)
        elif self._held is not None:
            self._held.append(item)
        else:
            self.lane.add(item)

    def give_up(self, told: End, answer: EndType) -> None:
        """Ends a stream whose rest is of no use: what is unsent is skipped, and END says so to the frontend."""
        if self.settled and self._held is None:
            return  # its END is in the string
        self._over(told)
        self._held = self._parts = self._closing = None
        self.lane.skip(self.slot)
        self.settled = True
        end = End(answer, text=told.text, number=self.number, records=self.records, size=self.payload)
        self.lane.add_urgent(end.encode(self.slot))

    def cut(self, told: End) -> None:
        """Ends a stream whose link has ended: there is nothing to write to."""
        self._held = self._parts = self._closing = None
        self.settled = True
        self._over(told)

    def _over(self, end: End) -> None:
        if self.end is not None:
            return
        self.end = end
        if self._timer is not None:
            self._timer.cancel()
        self.lane.link.node.count_end(end.type)
        self._wake()
        if end.type not in (EndType.COMPLETE, EndType.FAILED, EndType.STOPPED, EndType.REFUSED):
            self._tell()

    def stop(self) -> None:
        self.stop_requested = True
        self._tell()

    def _tell(self) -> None:
        if self._cancelled is not None:
            self._cancelled.set()
        if self._callbacks:
            for callback in self._callbacks:
                self.lane.link.node.loop.call_soon(callback)
            self._callbacks = None

    @property
    def is_cancelled(self) -> bool:
        """Says whether nobody wants the rest: stopped, killed, past its deadline, or lost."""
        return self.stop_requested or (
            self.end is not None and self.end.type in (EndType.KILLED, EndType.DEADLINE, EndType.LOST, EndType.PROTOCOL)
        )

    @property
    def cancelled(self) -> asyncio.Event:
        """Set when is_cancelled becomes true."""
        if self._cancelled is None:
            self._cancelled = asyncio.Event()
            if self.is_cancelled:
                self._cancelled.set()
        return self._cancelled

    def on_cancel(self, callback: Callable[[], None]) -> None:
        """Has the loop call the callback once, when is_cancelled becomes true, or soon if it is."""
        if self.is_cancelled:
            self.lane.link.node.loop.call_soon(callback)
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    def grant(self, consumed: int) -> None:
        """Takes a CONSUMED of this stream."""
        if not self.consumed <= consumed <= self.sent:
            text = f"CONSUMED says {consumed} bytes, known are {self.consumed} consumed and {self.sent} sent"
            self.give_up(End(EndType.PROTOCOL, text=text), EndType.PROTOCOL)
            return
        self.consumed = consumed
        self.limit = consumed + self.window
        if self._parts is not None:
            self._more()
        self._wake()

    def _wake(self) -> None:
        wakers, self._wakers = self._wakers, None
        for waker in wakers or ():
            if not waker.done():
                waker.set_result(None)

    def arm(self, microseconds: int) -> None:
        """Sets the deadline: the frontend's KILL decides, this is the backstop."""
        if 0 < microseconds < 1 << 62:
            delay = min(microseconds / 1e6, 30 * 86400.0)
            self._timer = self.lane.link.node.loop.call_later(delay, self._late)

    def _late(self) -> None:
        end = End(EndType.DEADLINE, text="the request's deadline has passed at the worker")
        if self.finish(end):
            self.lane.flush()
