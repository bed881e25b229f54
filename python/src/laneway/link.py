"""A link: everything between this worker and one frontend node. It knows streams, and no connections."""

from __future__ import annotations

import asyncio
import hmac
import os
from array import array
from typing import TYPE_CHECKING, Final

from . import wire
from .errors import Refused
from .lane import Lane
from .stream import Stream
from .wire import Code, End, EndType, WireError

if TYPE_CHECKING:
    from .node import Node
    from .wire import Hello, Terms

_PAGE: Final = 256
_OWED: Final = 1 << 63  # an END that answers a KILL is owed
_STOPPED: Final = 1 << 62  # a STOP came before the request of number + 1
_NUMBER: Final = wire.MAX_NUMBER


class Link:
    def __init__(self, node: Node, hello: Hello, proven: bytes | None, address: str, now: float) -> None:
        self.node = node
        self.peer = hello.node
        self.number = hello.link
        self.first = hello.lane
        self.proven = proven is not None
        self.address = address
        self.own = os.urandom(16)
        self.theirs = hello.own_secret
        self.named = False  # somebody has named its secrets, so its first HELLO is not repeated any more
        self.gone = False
        self.hold = 0.0
        self.idle_silence = self.active_silence = 0.0
        self.busy_since: float | None = None
        self.lanes = [Lane(self, i, now) for i in range(hello.lanes)]
        self.streams: dict[int, Stream] = {}  # by index, until END is sealed
        self.claims: dict[bytes, asyncio.Future[tuple[int, bytes]]] = {}
        self._pages: dict[int, array[int]] = {}
        self.agree(hello)

    def agree(self, h: Hello) -> None:
        """Takes what a HELLO says of times: the shorter of both ends, within the protocol's bounds."""
        own = self.node.config

        def ping(a: int, b: int) -> int:
            return min(max(min(a, b), wire.MIN_PING_MS), wire.MAX_PING_MS)

        idle, active = ping(own.idle_ping, h.idle_ping), ping(own.active_ping, h.active_ping)
        self.idle_silence = max(min(own.idle_silence, h.idle_silence), 3 * idle) / 1e3
        self.active_silence = max(min(own.active_silence, h.active_silence), 3 * active) / 1e3
        self.hold = min(own.resume, h.resume) / 1e3 + self.idle_silence + 5

    def knows(self, h: Hello) -> bool:
        """Says whether a HELLO names both secrets."""
        return hmac.compare_digest(self.theirs + self.own, h.own_secret + h.peer_secret)

    # --- the table of indexes

    def _entry(self, index: int) -> int:
        page = self._pages.get(index // _PAGE)
        return page[index % _PAGE] if page is not None else 0

    def _set(self, index: int, value: int) -> None:
        page = self._pages.get(index // _PAGE)
        if page is None:
            page = self._pages[index // _PAGE] = array("Q", bytes(8 * _PAGE))
        page[index % _PAGE] = value

    def number_of(self, slot: int) -> int:
        return self._entry(slot >> 8) & _NUMBER

    def attach(self, t: Terms) -> Stream:
        """Opens the stream of terms whose key holds."""
        node = self.node
        if t.lane >= len(self.lanes):
            raise Refused(Code.NO_WORKER, f"the terms name lane {t.lane} of {len(self.lanes)}")
        index = t.slot >> 8
        if index > node.config.max_streams:
            raise Refused(Code.NO_WORKER, f"the terms name slot {index} of {node.config.max_streams}")
        entry = self._entry(index)
        if index in self.streams or entry & _OWED or t.number <= entry & _NUMBER:
            raise Refused(Code.NO_WORKER, "the terms came twice, late, or were cancelled before")
        if not node.commit(t.window):
            raise Refused(Code.BUSY, "the windows of open streams and the logs of lanes fill their bound")
        lane = self.lanes[t.lane]
        stream = Stream(lane, t)
        stream.stop_requested = bool(entry & _STOPPED) and entry & _NUMBER == t.number - 1
        self._set(index, t.number)
        self.streams[index] = stream
        if lane.connection is None:
            lane.down_since = node.loop.time()
            lane.lost_told = False
        if self.busy_since is None:
            self.busy_since = node.loop.time()
        stream.arm(t.time_left)
        node.stats.opened += 1
        return stream

    def sealed(self, slot: int) -> None:
        """Forgets the stream of a slot, or that an END is owed for it."""
        index = slot >> 8
        stream = self.streams.get(index)
        if stream is not None and stream.slot == slot:
            del self.streams[index]
            self._uncommit(stream)
            if not self.streams:
                self.busy_since = None
        else:
            self._set(index, self._entry(index) & ~_OWED)
        if self.node.waiting_for_drain is not None:
            self.node.check_drained()

    def _uncommit(self, stream: Stream) -> None:
        self.node.committed -= stream.window
        stream.window = 0

    # --- what the frontend says

    def record(self, lane: Lane, kind: int, slot: int, body: bytes) -> None:
        """Handles a counted record; WireError ends the link."""
        if kind == wire.GRANT:
            ident, code, terms = wire.decode_grant(body)
            answer = self.claims.pop(ident, None)
            if answer is None or answer.done():
                self.node.stats.dropped += 1
            else:
                answer.set_result((code, terms))
            return
        if slot >> 8 > self.node.config.max_streams:
            raise WireError(f"slot {slot >> 8} is beyond the {self.node.config.max_streams} that HELLO offered")
        if kind == wire.CONSUMED:
            number, consumed = wire.decode_pair(kind, body)
            stream = self.streams.get(slot >> 8)
            if stream is None or stream.slot != slot or stream.number != number or stream.lane is not lane:
                self.node.stats.dropped += 1
            elif not stream.settled:
                stream.grant(consumed)
        elif kind == wire.STOP:
            self._stop(lane, slot, wire.decode_stop(body))
        else:
            self._kill(lane, slot, *wire.decode_kill(body))

    def _stop(self, lane: Lane, slot: int, number: int) -> None:
        index = slot >> 8
        entry, stream = self._entry(index), self.streams.get(index)
        if stream is not None and stream.number == number and stream.lane is lane:
            if stream.end is None:
                stream.stop()
        elif stream is None and not entry & _OWED and entry & _NUMBER < number <= _NUMBER:
            self._set(index, (number - 1) | _STOPPED)
        else:
            self.node.stats.dropped += 1

    def _kill(self, lane: Lane, slot: int, number: int, why: EndType) -> None:
        index = slot >> 8
        entry, stream = self._entry(index), self.streams.get(index)
        last = entry & _NUMBER
        if not 1 <= number <= _NUMBER:
            raise WireError(f"KILL names stream number {number}")
        if number > last:
            if stream is not None or entry & _OWED:
                raise WireError(f"KILL of slot {index} names number {number} while {last} is not over")
            self._set(index, number | _OWED)
            lane.owe(slot)
        elif stream is not None and stream.number == number and stream.lane is lane:
            given_up = f"given up by the frontend: {why.name.lower()}"
            text = "killed by the consumer" if why == EndType.KILLED else given_up
            stream.give_up(End(why, text=text), EndType.KILLED)
        else:
            self.node.stats.dropped += 1  # its END is in the string

    # --- ends

    def lane_lost(self, lane: Lane, why: str) -> None:
        """The lane's hold is over: writers are told, what was committed is free. ENDs go out if it comes back."""
        for stream in list(self.streams.values()):
            if stream.lane is lane:
                stream.give_up(End(EndType.LOST, text=why), EndType.LOST)
                self._uncommit(stream)
        lane.skip_now()

    def finish(self, why: str, *, protocol: bool = False, code: wire.Away | None = None) -> None:
        """Ends the link and all that belongs to it. With a code, the frontend is told."""
        if self.gone:
            return
        self.gone = True
        self.node.forget(self)
        for lane in self.lanes:
            connection, lane.connection = lane.connection, None
            if connection is not None:
                connection.lane = None
                if code is None:
                    connection.abort()
                else:
                    connection.go_away(code, why)
        end = EndType.PROTOCOL if protocol else EndType.LOST
        for stream in self.streams.values():
            stream.cut(End(end, text=why))
            self._uncommit(stream)
        self.streams.clear()
        self._pages.clear()
        for lane in self.lanes:
            lane.forget()
        claims, self.claims = self.claims, {}
        for answer in claims.values():
            if not answer.done():
                answer.cancel()
        if self.node.waiting_for_drain is not None:
            self.node.check_drained()
