"""A worker node: listeners, links, and the streams that terms open. Standard library only."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from . import wire
from .connection import Connection
from .errors import Refused
from .identity import Identity
from .link import Link
from .tls import Authority, Security
from .wire import Away, Code, EndType, Hello, OpenTerms, Terms, TermsVersionError, WireError

if TYPE_CHECKING:
    from collections.abc import Callable

    from .lane import Lane
    from .stream import Stream

_TICK: Final = 0.1
_HANDSHAKES: Final = 256
_STRANGERS: Final = 192
_ADDRESSES: Final = 4096


@dataclass(slots=True)
class Config:
    """Settings of a node. Times are in milliseconds, as they stand in HELLO."""

    planes: tuple[str, ...] = ("tls",)  # in the order of preference: tls, tcp
    host: str = ""  # what to bind; "" is every address
    port: int = 0  # the first one; each endpoint of each plane has its own
    endpoints: int = 1  # listening sockets a plane
    advertise: str = ""  # the host that frontends dial; found where it is empty
    name: str = ""
    authority: Authority | None = None  # CA mode in place of pins
    max_streams: int = 65536  # of a link
    max_links: int = 1024
    lane_log: int = 4 << 20
    max_memory: int = 1 << 30  # windows of open streams and logs
    resume: int = 10_000
    idle_ping: int = 5_000
    idle_silence: int = 15_000
    active_ping: int = 1_000
    active_silence: int = 3_000

    def validate(self) -> None:
        bad = []
        if not self.planes or set(self.planes) - {"tcp", "tls"} or len(set(self.planes)) < len(self.planes):
            bad.append(f"planes: {self.planes} are not tcp, tls, or both")
        for name, least, most in (
            ("endpoints", 1, 64), ("max_streams", 1, wire.MAX_INDEX), ("max_links", 1, 1 << 20),
            ("lane_log", wire.MIN_LOG, wire.MAX_LOG), ("max_memory", 1 << 20, 1 << 44),
            ("resume", 0, wire.MAX_RESUME_MS), ("port", 0, 65535),
        ):  # fmt: skip
            value = getattr(self, name)
            if not least <= value <= most:
                bad.append(f"{name}: {value} is not {least} to {most}")
        if bad:
            raise ValueError("; ".join(bad))


@dataclass(slots=True)
class Stats:
    """Counters."""

    opened: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    writes: int = 0
    takeovers: int = 0
    resent: int = 0  # bytes
    skipped: int = 0
    dropped: int = 0
    refused: int = 0  # connections
    links: int = 0


class Node:
    """One life of a process as a worker. Use it on the loop's thread only, but for call."""

    def __init__(self, config: Config | None = None, *, log: logging.Logger | None = None) -> None:
        self.config = config or Config()
        self.config.validate()
        self.log = log or logging.getLogger("laneway")
        self.loop = asyncio.get_running_loop()
        pins = "tls" in self.config.planes and self.config.authority is None
        self.identity = Identity.generate() if pins else Identity.random()
        self._security = Security(self.identity, self.config.authority) if "tls" in self.config.planes else None
        self.stats = Stats()
        self.links: dict[tuple[bytes, int], Link] = {}
        self.dirty: list[Lane] = []
        self.log_bytes = 0
        self.committed = 0
        self.draining = ""
        self.closed = False
        self.waiting_for_drain: asyncio.Event | None = None
        self._servers: list[asyncio.Server] = []
        self._bound: list[tuple[str, str, int]] = []
        self._shaking: dict[Connection, None] = {}  # oldest first
        self._addresses: Counter[str] = Counter()
        self._calls: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._flushing = False
        self._ticker: asyncio.TimerHandle | None = None
        self._ticked = self.loop.time()

    # --- start, drain, close

    async def listen(self) -> None:
        """Binds every endpoint of every plane, all or none, and begins to accept."""
        port = self.config.port
        sockets: list[tuple[str, socket.socket]] = []
        try:
            for plane in self.config.planes:
                for _ in range(self.config.endpoints):
                    sockets.append((plane, _bind(self.config.host, port)))
                    port += port > 0
        except OSError:
            for _, sock in sockets:
                sock.close()
            raise
        for plane, sock in sockets:
            host, bound = sock.getsockname()[:2]
            self._bound.append((plane, self.config.advertise or _dialled(host), bound))
            factory = partial(self._accepted, plane)
            self._servers.append(await self.loop.create_server(factory, sock=sock, backlog=1024))
        if "tcp" in self.config.planes:
            self.log.info("plane tcp is not encrypted: who reads the wire has answers and the links' secrets")
        self._ticker = self.loop.call_later(_TICK, self._tick)

    def _accepted(self, plane: str) -> Connection:
        session = self._security.session() if plane == "tls" and self._security is not None else None
        return Connection(self, plane, session)

    def descriptor(self) -> dict[str, Any]:
        """The node's part of a worker's record: what a frontend must know to dial it."""
        planes = [
            {"name": p, "endpoints": [_join(h, n) for q, h, n in self._bound if q == p]} for p in self.config.planes
        ]
        record: dict[str, Any] = {"id": self.identity.id.hex(), "planes": planes}
        if self.config.name:
            record["name"] = self.config.name
        if any(ipaddress.ip_address(h).is_loopback for _, h, _ in self._bound if _is_ip(h)) and (n := local_network()):
            record["network"] = n
        return {**record, "wire_min": wire.VERSION_MIN, "wire_max": wire.VERSION_MAX}

    async def drain(self, timeout: float | None = None) -> bool:
        """Refuses new requests, tells the frontends, and waits until what is open has ended and its end was received.
        False: the time was over before."""
        if not self.draining:
            self.draining = "the worker drains"
            for link in self.links.values():
                for lane in link.lanes:
                    lane.tell(wire.encode_goaway(Away.DRAINING, self.draining))
                    lane.flush()
        self.waiting_for_drain = event = asyncio.Event()
        self.check_drained()
        try:
            await asyncio.wait_for(event.wait(), timeout)
        except asyncio.TimeoutError:
            return False
        finally:
            self.waiting_for_drain = None
        return True

    def check_drained(self) -> None:
        event = self.waiting_for_drain
        if event is not None and not any(
            link.streams or any(not lane.settled() and not lane.lost_told for lane in link.lanes)
            for link in self.links.values()
        ):
            event.set()

    async def close(self) -> None:
        """Ends what is open as lost, and closes connections and listeners."""
        if self.closed:
            return
        self.closed = True
        if self._ticker is not None:
            self._ticker.cancel()
        for server in self._servers:
            server.close()
        for connection in list(self._shaking):
            connection.go_away(Away.CLOSING, "the worker closes")
        for link in list(self.links.values()):
            link.finish("the worker closes", code=Away.CLOSING)
        await asyncio.sleep(0)

    # --- streams

    def attach(self, raw: bytes) -> Stream:
        """Opens the stream that terms name. Raises Refused."""
        self._takes()
        try:
            terms = Terms.decode(raw)
        except TermsVersionError as err:
            raise Refused(Code.UNSUPPORTED, str(err)) from err
        except WireError as err:
            raise Refused(Code.BAD_REQUEST, str(err)) from err
        if terms.worker != self.identity.id:
            raise Refused(Code.NO_WORKER, "the terms are of another node, or of another life of this one")
        link = self.links.get((terms.frontend, terms.link))
        if link is None:
            raise Refused(Code.NO_WORKER, f"there is no link {terms.link} to node {terms.frontend.hex()}")
        return self._attach(link, terms, raw)

    def _attach(self, link: Link, terms: Terms, raw: bytes) -> Stream:
        if not wire.key_holds(link.theirs + link.own, raw):  # before anything of the terms changes anything
            raise Refused(Code.NO_WORKER, "the key of the terms is not this link's")
        return link.attach(terms)

    async def claim(self, raw: bytes) -> Stream:
        """Asks for the terms of open terms and opens their stream. Raises Refused, and TimeoutError when the request's
        time is over."""
        self._takes()
        try:
            open_terms = OpenTerms.decode(raw)
        except TermsVersionError as err:
            raise Refused(Code.UNSUPPORTED, str(err)) from err
        except WireError as err:
            raise Refused(Code.BAD_REQUEST, str(err)) from err
        left = open_terms.time_left / 1e6 if 0 < open_terms.time_left < 1 << 62 else None
        return await asyncio.wait_for(self._claim(open_terms), left)

    async def _claim(self, terms: OpenTerms) -> Stream:
        while True:
            link = next((k for k in reversed(self.links.values()) if k.peer == terms.frontend), None)
            if link is None:
                raise Refused(Code.NO_WORKER, f"there is no link to node {terms.frontend.hex()}")
            if terms.id in link.claims:
                raise Refused(Code.NO_WORKER, "the request came twice")
            if len(link.claims) >= wire.MAX_CLAIMS:
                raise Refused(Code.BUSY, f"{wire.MAX_CLAIMS} claims are under way on the link")
            answer: asyncio.Future[tuple[int, bytes]] = self.loop.create_future()
            link.claims[terms.id] = answer
            lane = next((n for n in link.lanes if n.connection is not None), link.lanes[0])
            lane.add_urgent(wire.encode_claim(terms.id))
            lane.flush()
            await asyncio.wait((answer,))
            if answer.cancelled():
                continue  # the link has ended: perhaps there is a newer one
            code, raw = answer.result()
            self._takes()
            return self._redeem(link, code, raw)

    def _redeem(self, link: Link, code: int, raw: bytes) -> Stream:
        if code == wire.GrantCode.BUSY:
            raise Refused(Code.BUSY, "the frontend has no room")
        if code == wire.GrantCode.CLOSING:
            raise Refused(Code.DRAINING, "the frontend takes no new responses")
        if code != wire.GrantCode.GRANTED:
            raise Refused(Code.NO_WORKER, "the frontend does not wait for this request any more")
        try:
            granted = Terms.decode(raw)
        except WireError as err:
            raise Refused(Code.BAD_REQUEST, str(err)) from err
        if (granted.frontend, granted.worker, granted.link) != (link.peer, self.identity.id, link.number) or link.gone:
            raise Refused(Code.NO_WORKER, "the terms that answer the claim are of another link")
        return self._attach(link, granted, raw)

    def _takes(self) -> None:
        if self.closed:
            raise Refused(Code.DRAINING, "the worker is closed")
        if self.draining:
            raise Refused(Code.DRAINING, self.draining)

    def flush(self) -> None:
        """Writes what all streams have put since the last flush: the end of an engine's pass."""
        self._flushing = False
        dirty, self.dirty = self.dirty, []
        for lane in dirty:
            lane.flush()

    def flush_soon(self) -> None:
        """Has the loop flush once when it has come round: for those who have no passes."""
        if not self._flushing:
            self._flushing = True
            self.loop.call_soon(self._flush_now)

    def _flush_now(self) -> None:
        if self._flushing:
            self.flush()

    def call(self, function: Callable[..., object], *args: Any) -> None:
        """Has the loop call a function: the one method that another thread may use. Calls keep their order, and those
        that come together cost one wake of the loop."""
        first = not self._calls
        self._calls.append((function, args))
        if first:
            self.loop.call_soon_threadsafe(self._called)

    def _called(self) -> None:
        for _ in range(len(self._calls)):
            function, args = self._calls.popleft()
            try:
                function(*args)
            except Exception:
                self.log.exception("a function that was handed to call has failed")
        if self._calls:
            self.loop.call_soon(self._called)
        self.flush()

    def commit(self, size: int) -> bool:
        if self.committed + self.log_bytes + size > self.config.max_memory:
            return False
        self.committed += size
        return True

    def log_limit(self) -> int:
        """How many bytes a lane may keep unacknowledged now."""
        over = self.committed + self.log_bytes > self.config.max_memory
        return min(128 << 10, self.config.lane_log) if over else self.config.lane_log

    def count_end(self, kind: EndType) -> None:
        self.stats.ended[kind.name.lower()] += 1

    # --- handshakes and links

    def shaking(self, c: Connection) -> bool:
        """Gives a connection a place for its handshake. When all are taken the oldest goes, first of strangers; one of
        an address that has had a link only for another such one."""
        c.address = _party(c.address)
        c.known = c.address in self._addresses
        strangers = [o for o in self._shaking if not o.known] if len(self._shaking) >= _STRANGERS else []
        if len(self._shaking) >= _HANDSHAKES or (not c.known and len(strangers) >= _STRANGERS):
            if not strangers and not c.known:
                return False
            victim = strangers[0] if strangers else next(iter(self._shaking))
            victim.abort()
        self._shaking[c] = None
        return not self.closed

    def shaken(self, c: Connection) -> None:
        self._shaking.pop(c, None)

    def welcome(self, c: Connection, h: Hello) -> None:
        """Checks a HELLO and gives the connection to its lane, all in one step."""
        try:
            wire.meet_version(h.lowest, h.highest)
        except WireError as err:
            c.refuse(Away.VERSION, str(err), self._hello(h).encode())
            return
        if c.proven is not None and c.proven != h.node:
            c.refuse(Away.IDENTITY, f"HELLO names node {h.node.hex()}, the plane proves {c.proven.hex()}")
            return
        link = self.links.get((h.node, h.link))
        if link is None:
            link = self._begin(c, h)
        elif not self._admit(link, c, h):
            return
        if link is None:
            return
        lane = link.lanes[h.lane]
        try:
            lane.check_hello(h.received)
        except WireError as err:
            c.refuse(Away.PROTOCOL, str(err))
            link.finish(str(err), protocol=True, code=Away.PROTOCOL)
            return
        self._take_over(link, lane, c, h)

    def _take_over(self, link: Link, lane: Lane, c: Connection, h: Hello) -> None:
        lane.stop(self.loop.time())
        self.stats.takeovers += lane.ever_up
        lane.serial = h.serial
        answer = self._hello(h)
        answer.lanes, answer.own_secret, answer.received = len(link.lanes), link.own, lane.received
        c.taken(lane)
        c.send(answer.encode())
        lane.start(c, h.received, h.log)
        if self.draining:
            lane.tell(wire.encode_goaway(Away.DRAINING, self.draining))
        lane.flush()

    def _hello(self, h: Hello) -> Hello:
        c = self.config
        return Hello(
            wire.VERSION_MIN, wire.VERSION_MAX, self.identity.id, h.link, h.lane, h.lanes, c.max_streams, h.serial, 0,
            c.lane_log, c.resume, c.idle_ping, c.idle_silence, c.active_ping, c.active_silence, bytes(16), h.own_secret,
        )  # fmt: skip

    def _admit(self, link: Link, c: Connection, h: Hello) -> bool:
        """Says whether a connection may join a link that is there; else it has refused it."""
        first = not any(h.peer_secret)
        if first and not (h.own_secret == link.theirs and not link.named and h.lane == link.first):
            c.refuse(Away.UNKNOWN_LINK, f"link {h.link} exists, and its secrets must be named")
        elif not first and not link.knows(h):
            c.refuse(Away.UNKNOWN_LINK, f"unknown link {h.link} of node {h.node.hex()}")
        elif link.proven and c.proven is None:
            c.refuse(Away.IDENTITY, f"link {h.link} was begun where identities are proven, unlike {c.plane}")
        elif h.lane >= len(link.lanes):
            c.refuse(Away.LIMIT, f"lane {h.lane} of link {h.link}, which has {len(link.lanes)}")
        elif h.serial <= link.lanes[h.lane].serial:
            c.refuse(Away.LIMIT, f"serial {h.serial} of lane {h.lane}, which is at {link.lanes[h.lane].serial}")
        else:
            link.named = link.named or not first
            link.agree(h)
            return True
        return False

    def _begin(self, c: Connection, h: Hello) -> Link | None:
        if any(h.peer_secret):
            c.refuse(Away.UNKNOWN_LINK, f"unknown link {h.link} of node {h.node.hex()}")
            return None
        if h.received:
            c.refuse(Away.PROTOCOL, f"HELLO says {h.received} bytes received on a link that is new")
            return None
        most = self.config.max_links
        of_node = sum(k.peer == h.node and k.proven for k in self.links.values()) if c.proven is not None else 0
        if (
            len(self.links) >= most
            or self._addresses[c.address] >= max(most // 16, 4)
            or of_node >= max(most // 64, 4)
        ):
            c.refuse(Away.LIMIT, "too many links are open")
            return None
        link = Link(self, h, c.proven, c.address, self.loop.time())
        self.links[h.node, h.link] = link
        self._addresses[c.address] += 1
        if len(self._addresses) > _ADDRESSES:
            for address in [a for a, n in self._addresses.items() if n == 0][:1]:
                del self._addresses[address]
        self.stats.links += 1
        return link

    def forget(self, link: Link) -> None:
        if self.links.get((link.peer, link.number)) is link:
            del self.links[link.peer, link.number]
            self._addresses[link.address] -= 1

    # --- time

    def _tick(self) -> None:
        """Finds silent connections and holds that are over. A tick that comes late moves all deadlines: what the
        process itself did not see is no silence of a peer."""
        now = self.loop.time()
        late = max(now - self._ticked - 2 * _TICK, 0.0)
        self._ticked = now
        for link in list(self.links.values()):
            if late and link.busy_since is not None:
                link.busy_since += late
            for lane in link.lanes:
                self._check(link, lane, now, late)
            if all(n.connection is None and now - n.down_since >= link.hold for n in link.lanes):
                link.finish(f"no connection to the frontend for {link.hold:g} s")
        if self.waiting_for_drain is not None:
            self.check_drained()
        self.flush()
        self._ticker = self.loop.call_later(_TICK, self._tick)

    def _check(self, link: Link, lane: Lane, now: float, late: float) -> None:
        c = lane.connection
        if c is None:
            lane.down_since += late
            if not lane.lost_told and now - lane.down_since >= link.hold:
                lane.lost_told = True
                link.lane_lost(lane, f"no connection to the frontend for {link.hold:g} s")
            return
        c.heard += late
        limit, since = link.idle_silence, c.heard
        if link.busy_since is not None:
            limit, since = link.active_silence, max(c.heard, min(link.busy_since, now))
        if now - since >= limit:
            self.log.info("lane %d of link %d is silent for %.1f s", lane.index, link.number, now - since)
            lane.stop(now)
        elif lane.settled() is False:
            lane.flush()


def _bind(host: str, port: int) -> socket.socket:
    if host:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=1024)
    if socket.has_dualstack_ipv6():
        with suppress(OSError):
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1024)
    return socket.create_server(("", port), backlog=1024)


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _dialled(host: str) -> str:
    """The address that frontends dial for a bound one."""
    if not ipaddress.ip_address(host).is_unspecified:
        return host
    for family, probe in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as s:
            s.connect((probe, 9))  # sends nothing
            return str(s.getsockname()[0])
    return "127.0.0.1"


def _party(address: str) -> str:
    """Tells one party's address from another's; of IPv6 the network of 64 bits, as who has one address has them all."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is not None:
            return str(ip.ipv4_mapped)
        if not ip.is_link_local:
            return str(ipaddress.ip_network((ip, 64), strict=False))
    return str(ip)


def local_network() -> str:
    """Names the network stack of this process: two have the same name if a loopback address means the same to both."""
    import hashlib
    import os

    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as f:
            boot = f.read()
        space = os.readlink("/proc/self/ns/net").encode()
    except OSError:
        return ""
    return hashlib.sha256(boot + space).hexdigest()[:16]
