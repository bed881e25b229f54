"""One connection: its handshakes, and then the records between its socket and its lane."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Final, cast

from . import wire
from .tls import ALERT_VERSION
from .wire import Away, Hello, WireError

if TYPE_CHECKING:
    from .lane import Lane
    from .node import Node
    from .tls import Session

_HANDSHAKE: Final = 5.0


class Connection(asyncio.Protocol):
    def __init__(self, node: Node, plane: str, session: Session | None) -> None:
        self.node = node
        self.plane = plane
        self.session = session
        self.lane: Lane | None = None
        self.paused = False
        self.heard = node.loop.time()
        self.since = self.heard
        self.address = ""
        self.known = False
        self.peer_drains = False
        self._transport: asyncio.Transport | None = None
        self._rest = b""
        self._skip = self._skip_counted = 0
        self._greeted = False
        self._over = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def proven(self) -> bytes | None:
        return self.session.proven if self.session is not None else None

    # --- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=0)
        peer = transport.get_extra_info("peername")
        self.address = peer[0] if peer else ""
        if not self.node.shaking(self):
            self.abort()
            return
        self._timer = self.node.loop.call_later(_HANDSHAKE, self.abort)

    def data_received(self, data: bytes) -> None:
        if self._over:
            return
        self.heard = self.node.loop.time()
        try:
            if self.session is not None:
                data = self._decrypt(data)
            if data:
                if self._greeted:
                    self._read(data)
                else:
                    self._greet(data)
        except WireError as err:
            self._accuse(str(err))
        except ssl.SSLError as err:
            self._fail(str(err))

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(str(exc) if exc else "the peer ended the connection")

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        if self.lane is not None:
            self.lane.flush()

    # --- reading

    def _decrypt(self, data: bytes) -> bytes:
        session = cast("Session", self.session)
        if not session.ready and self._rest == b"" and data[0] != 22:
            self._write(ALERT_VERSION)
            raise ssl.SSLError("the peer does not speak TLS")
        self._rest = self._rest or (b"" if session.ready else b"\x00")
        was = session.ready
        try:
            plain = session.feed(data)
        finally:
            if out := session.pending():
                self._write(out)
        if session.ready and not was:
            self._rest = b""
        return plain

    def _greet(self, data: bytes) -> None:
        """Waits for the whole HELLO and answers it."""
        data = self._rest + data
        self._rest = data
        if self.session is None and data[0] in (21, 22) and (len(data) < 2 or data[1] == 3):
            if len(data) >= 2:
                raise WireError("the peer speaks TLS, this is plane tcp")
            return
        if data[0] != wire.HELLO:
            raise WireError(f"the first record is of kind 0x{data[0]:02x}, not HELLO")
        if len(data) < wire.HEADER_SIZE:
            return
        head, slot = wire.HEADER.unpack_from(data)
        length = head & 0xFFFFFF
        wire.check_header(wire.HELLO, length, slot)
        if len(data) < wire.HEADER_SIZE + length:
            return
        self._rest = b""
        self._greeted = True
        self.node.welcome(self, Hello.decode(data[wire.HEADER_SIZE : wire.HEADER_SIZE + length]))
        if not self._over and (rest := data[wire.HEADER_SIZE + length :]):
            self._read(rest)

    def taken(self, lane: Lane) -> None:
        """The handshake is through: the connection is this lane's."""
        self.lane = lane
        self._shaken()

    def _shaken(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self.node.shaken(self)

    def _read(self, data: bytes) -> None:
        lane = self.lane
        if lane is None:
            return
        if self._rest:
            data = self._rest + data
            self._rest = b""
        at, end, before = 0, len(data), lane.received
        while True:
            if self._skip:
                step = min(self._skip, end - at)
                at += step
                self._skip -= step
                if self._skip:
                    break
                lane.received += self._skip_counted
                self._skip_counted = 0
            if end - at < wire.HEADER_SIZE:
                break
            head, slot = wire.HEADER.unpack_from(data, at)
            kind, size = head >> 24, wire.HEADER_SIZE + (head & 0xFFFFFF)
            if wire.skipped(kind):
                self._skip = size
                self._skip_counted = size if wire.counted(kind) else 0
                continue
            wire.check_header(kind, size - wire.HEADER_SIZE, slot)
            if end - at < size:
                break
            body = data[at + wire.HEADER_SIZE : at + size]
            at += size
            if kind < wire.OPEN:
                self._uncounted(lane, kind, body)
            else:
                lane.link.record(lane, kind, slot, body)
                lane.received += size
            if self.lane is not lane:
                return  # the link has ended
        self._rest = data[at:]
        lane.after_read(lane.received != before, self.peer_drains)

    def _uncounted(self, lane: Lane, kind: int, body: bytes) -> None:
        if kind == wire.PING:
            lane.ping(*wire.decode_ping(kind, body))
        elif kind == wire.PONG:
            lane.acknowledged(wire.decode_ping(kind, body)[1])
        elif kind == wire.ACK:
            lane.acknowledged(wire.decode_ack(body))
        elif kind == wire.GOAWAY:
            code, text = wire.decode_goaway(body)
            if code == Away.DRAINING:
                self.peer_drains = True
                return
            if code in (Away.PROTOCOL, Away.CLOSING, Away.UNKNOWN_LINK):
                lane.link.finish(f"the frontend says: {text}", protocol=code == Away.PROTOCOL)
            else:
                self._fail(f"the frontend says: {text}")
        else:
            raise WireError("HELLO came twice")

    # --- writing and ending

    def send(self, data: bytes) -> None:
        self.node.stats.writes += 1
        self._write(self.session.write(data) if self.session is not None else data)

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def go_away(self, code: Away, text: str, before: bytes = b"") -> None:
        """Says why, as the last record, and closes. It waits for nobody."""
        if self._over:
            return
        self._over = True
        self._shaken()
        record = before + wire.encode_goaway(code, text)
        if self.session is None:
            self._write(record)
        elif self.session.ready:
            self._write(self.session.write(record))
        if self._transport is not None:
            self._transport.close()
            # What the peer does not read is dropped in a while.
            self.node.loop.call_later(1.0, self._transport.abort)

    def refuse(self, code: Away, text: str, before: bytes = b"") -> None:
        self.node.stats.refused += 1
        self.node.log.info("a connection from %s was refused: %s", self.address, text)
        self.go_away(code, text, before)

    def _accuse(self, text: str) -> None:
        """The peer broke the protocol: that ends the link, or before there is one the connection."""
        lane, self.lane = self.lane, None
        if lane is None:
            self.refuse(Away.PROTOCOL, text)
            return
        self.lane = lane
        lane.link.finish(text, protocol=True, code=Away.PROTOCOL)

    def _fail(self, why: str) -> None:
        """The connection is dead; the lane waits for the next one."""
        lane = self.lane
        if lane is not None and lane.connection is self:
            self.node.log.info("lane %d of link %d is down: %s", lane.index, lane.link.number, why)
            lane.stop(self.node.loop.time())
        self.abort()

    def abort(self) -> None:
        self._over = True
        self._shaken()
        if self.session is not None:
            self.session.close()
        if self._transport is not None:
            if self.session is not None and not self.session.ready:
                self._transport.close()  # an alert goes out
            else:
                self._transport.abort()
