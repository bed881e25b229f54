"""A lane: a pair of byte strings that outlives the connections which carry it. It knows records, and no streams."""

from __future__ import annotations

from array import array
from collections import deque
from typing import TYPE_CHECKING, Final

from . import wire

if TYPE_CHECKING:
    from .connection import Connection
    from .link import Link
    from .stream import Stream

_BULK: Final = 64 << 10
_ACK_AT: Final = 64 << 10
_END_SIZE: Final = 38


class Lane:
    """One lane of a link. Everything happens on the loop's thread, so a takeover is one step."""

    def __init__(self, link: Link, index: int, now: float) -> None:
        self.link = link
        self.index = index
        self.connection: Connection | None = None
        self.serial = 0  # of the newest connection
        self.down_since = now  # while there is no connection
        self.lost_told = False
        self.ever_up = False
        # The own string: [acked, sealed) is the log; given is what the connection has of it.
        self.acked = self.sealed = self.given = 0
        self._log: deque[bytes] = deque()
        self._log_start = 0
        self._replay: deque[bytes] = deque()
        self._control: list[bytes] = []  # uncounted, for this connection
        self._urgent: deque[bytes] = deque()
        self._bulk: deque[bytes] = deque()
        self._size = 0  # of urgent and bulk
        self._owed: array[int] = array("I")  # slots whose END(killed) answers a KILL that came before a request
        self._skip: set[int] = set()
        self._waiting: deque[Stream] = deque()
        self._ends = 0  # ENDs in urgent and bulk
        self.epoch = 0  # grows when bulk was emptied
        self._dirty = False
        # The peer's string.
        self.received = 0
        self.named = 0  # what the peer was told of received
        self._ack_at = _ACK_AT

    # --- what the streams write

    def add(self, item: bytes) -> None:
        """Adds a whole record to what is to be written."""
        self._bulk.append(item)
        self._size += len(item)
        if item[0] == 0x13:  # END
            self._ends += 1
        if not self._dirty:
            self._dirty = True
            self.link.node.dirty.append(self)

    def add_urgent(self, item: bytes) -> None:
        self._urgent.append(item)
        self._size += len(item)
        self._ends += item[0] == wire.END
        if not self._dirty:
            self._dirty = True
            self.link.node.dirty.append(self)

    def owe(self, slot: int) -> None:
        """Owes END(killed) for a slot whose request has not come: each slot once, until that END is sealed."""
        self._owed.append(slot)

    def wait(self, stream: Stream) -> None:
        self._waiting.append(stream)

    def skip(self, slot: int) -> None:
        """Skips what is unsent of a slot, up to its END."""
        if self._size:
            self._skip.add(slot)

    def flush_soon(self) -> None:
        self.link.node.flush_soon()

    def settled(self) -> bool:
        """Says whether all was written and acknowledged."""
        return self.acked == self.sealed and not self._size and not self._owed and not self._waiting

    # --- writing

    def flush(self) -> None:
        """Writes what there is, as far as the socket and the log have room."""
        self._dirty = False
        connection = self.connection
        while connection is not None and not connection.paused:
            batch = self._gather()
            if not batch:
                return
            connection.send(batch)
            connection = self.connection

    def _gather(self) -> bytes:
        control = b""
        if self._control:
            control = b"".join(self._control)
            self._control.clear()
        if self._replay:
            part = self._replay.popleft()
            self.given += len(part)
            return control + part
        if not self._size and not self._owed and not self._waiting:
            return control
        room = self.link.node.log_limit() - (self.sealed - self.acked)
        if self._owed:
            self._pay(room)
        if self._waiting and len(self._bulk) == 0:
            self._turns()
        batch = self._all() if self._size <= min(room, _BULK) and not self._skip else self._some(room)
        if not batch:
            return control
        self._log.append(batch)
        self.sealed += len(batch)
        self.given = self.sealed
        self.link.node.log_bytes += len(batch)
        return control + batch if control else batch

    def _pay(self, room: int) -> None:
        """Adds ENDs that answer KILLs, as many as the log has room for."""
        turn = min(len(self._owed), max(room - self._size, 0) // _END_SIZE, 400)
        for slot in self._owed[:turn]:
            self.add_urgent(wire.End(wire.EndType.KILLED, number=self.link.number_of(slot)).encode(slot))
        del self._owed[:turn]

    def _turns(self) -> None:
        for _ in range(len(self._waiting)):
            stream = self._waiting.popleft()
            if stream.turn():
                self._waiting.append(stream)
            if self._size >= _BULK:
                break

    def _all(self) -> bytes:
        batch = b"".join((*self._urgent, *self._bulk))
        ended = [i for i in (*self._urgent, *self._bulk) if i[0] == wire.END] if self._ends else []
        self._urgent.clear()
        self._bulk.clear()
        self._size = self._ends = 0
        self.epoch += 1
        for item in ended:
            self.link.sealed(int.from_bytes(item[4:8], "big"))
        return batch

    def _some(self, room: int) -> bytes:
        """Whole records, as many as there is room for, without those of streams that were given up. A given-up stream's
        END may be urgent and overtake its own records, which are skipped then."""
        parts: list[bytes] = []
        ended: list[int] = []
        total = 0
        for queue, most in ((self._urgent, room), (self._bulk, min(room, _BULK))):
            while queue:
                item = queue[0]
                slot = int.from_bytes(item[4:8], "big")
                kind = item[0]
                if slot in self._skip and kind != wire.END:
                    queue.popleft()
                    self._size -= len(item)
                    self.link.node.stats.skipped += 1
                    continue
                if total + len(item) > most:
                    break
                queue.popleft()
                self._size -= len(item)
                total += len(item)
                parts.append(item)
                if kind == wire.END:
                    self._ends -= 1
                    ended.append(slot)
            if queue:
                break
        if not self._bulk:
            self.epoch += 1
        for slot in ended:
            if slot in self._skip:
                self._drop(slot)
            self.link.sealed(slot)
        return b"".join(parts)

    def _drop(self, slot: int) -> None:
        """Takes out what is left of a slot whose END has been sealed: its index may come again."""
        self._skip.discard(slot)
        raw = slot.to_bytes(4, "big")
        for name in ("_urgent", "_bulk"):
            queue: deque[bytes] = getattr(self, name)
            kept = deque(i for i in queue if i[4:8] != raw)
            if len(kept) != len(queue):
                self.link.node.stats.skipped += len(queue) - len(kept)
                self._size -= sum(map(len, queue)) - sum(map(len, kept))
                setattr(self, name, kept)

    def skip_now(self) -> None:
        """Lets go of all that is unsent and skipped: the lane's hold is over."""
        for slot in list(self._skip):
            raw = slot.to_bytes(4, "big")
            for name in ("_urgent", "_bulk"):
                queue: deque[bytes] = getattr(self, name)
                kept = deque(i for i in queue if i[4:8] != raw or i[0] == wire.END)
                self._size -= sum(map(len, queue)) - sum(map(len, kept))
                setattr(self, name, kept)
            self._skip.discard(slot)

    # --- connections

    def check_hello(self, received: int) -> None:
        """Raises WireError if HELLO's received cannot be."""
        if not self.acked <= received <= self.sealed:
            raise wire.WireError(
                f"HELLO says {received} bytes received, {self.acked} were acknowledged and {self.sealed} sent"
            )
        at = self._log_start
        for chunk in self._log:
            if at + len(chunk) <= received:
                at += len(chunk)
                continue
            inside = 0
            while at + inside < received:
                inside += 8 + int.from_bytes(chunk[inside + 1 : inside + 4], "big")
            if at + inside != received:
                raise wire.WireError(f"HELLO says {received} bytes received, where no record ends")
            return

    def stop(self, now: float) -> None:
        """Ends the connection: nothing that it still brings counts."""
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.lane = None
            connection.abort()
            self.down_since = now
            self.lost_told = False

    def start(self, connection: Connection, peer_received: int, peer_log: int) -> None:
        """Goes on with a new connection, after HELLO was written to it."""
        self.connection = connection
        self.ever_up = True
        self.named = self.received
        self._ack_at = min(_ACK_AT, peer_log // 4)
        self._control.clear()
        self._acknowledge(peer_received)
        self.given = peer_received
        self._replay.clear()
        at = self._log_start
        for chunk in self._log:
            self._replay.append(chunk if at >= peer_received else chunk[peer_received - at :])
            at += len(chunk)
        self.link.node.stats.resent += sum(map(len, self._replay))

    def tell(self, record: bytes) -> None:
        """Queues an uncounted record for the connection there is."""
        if self.connection is not None:
            self._control.append(record)

    # --- reading

    def ping(self, value: int, received: int) -> None:
        self.acknowledged(received)
        self._control.append(wire.encode_ping(wire.PONG, value, self.received))
        self.named = self.received

    def acknowledged(self, received: int) -> None:
        if received > self.given:
            raise wire.WireError(f"{received} bytes received, {self.given} were sent")
        self._acknowledge(received)

    def _acknowledge(self, received: int) -> None:
        if received <= self.acked:
            return
        self.acked = received
        log, at = self._log, self._log_start
        while log and at + len(log[0]) <= received:
            size = len(log.popleft())
            at += size
            self.link.node.log_bytes -= size
        self._log_start = at

    def after_read(self, counted: bool, draining: bool) -> None:
        unnamed = self.received - self.named
        if unnamed >= self._ack_at or (draining and counted and unnamed):
            self._control.append(wire.encode_ack(self.received))
            self.named = self.received
        self.flush()

    def forget(self) -> None:
        """Lets go of everything: the link has ended."""
        self.link.node.log_bytes -= sum(map(len, self._log))
        for queue in (self._log, self._replay, self._urgent, self._bulk, self._waiting):
            queue.clear()
        self._owed = array("I")
        self._skip.clear()
        self._size = self._ends = 0

