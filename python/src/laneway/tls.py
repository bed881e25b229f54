"""The plane `tls`: TLS 1.3 over memory buffers, so that one write of a lane is one write of its socket."""

from __future__ import annotations

import ipaddress
import ssl
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from .identity import Identity, as_file, certificate_id

ALPN: Final = "laneway/1"
_NO_CHECK_TIME: Final = 0x200000  # X509_V_FLAG_NO_CHECK_TIME: pins do not look at dates, and clocks differ
_PARTIAL_CHAIN: Final = 0x80000
_CERTIFICATE: Final = 11  # the handshake message
ALERT_VERSION: Final = b"\x15\x03\x03\x00\x02\x02\x46"  # fatal, protocol_version


@dataclass(frozen=True, slots=True)
class Authority:
    """CA mode: files with the authorities, this node's certificate and key, and the name that a frontend's certificate
    must have: a DNS name, an IP address or a URI."""

    ca: str
    certificate: str
    key: str
    peer_name: str


class Security:
    """Makes the sessions of a listener."""

    def __init__(self, identity: Identity, authority: Authority | None = None) -> None:
        if authority is None and not identity.certificate:
            raise ValueError("plane tls with pins needs an Identity with a certificate: Identity.generate()")
        if authority is not None and not authority.peer_name:
            raise ValueError("an Authority needs a peer_name: without one every certificate of it could take part")
        self.identity = identity
        self.authority = authority
        self.session().close()  # files that cannot be used are found now

    def session(self) -> Session:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.set_alpn_protocols([ALPN])
        context.num_tickets = 0  # a resumed session would skip the check of what the peer proves
        context.verify_mode = ssl.CERT_REQUIRED
        if self.authority is not None:  # read for each handshake: files that were renewed are used at once
            context.load_verify_locations(self.authority.ca)
            context.load_cert_chain(self.authority.certificate, self.authority.key)
            return Session(context, self.authority.peer_name)
        with as_file(self.identity.certificate + self.identity.key) as path:
            context.load_cert_chain(path)
        _take_any_certificate(context)
        return Session(context, None)


def _take_any_certificate(context: ssl.SSLContext) -> None:
    """Makes a context ask for a certificate and take whichever is shown, if the peer has its key.

    `ssl` has no such mode: it verifies against authorities or does not ask. So the certificate that the peer shows is
    made an authority of this context, which is this connection's own, at the moment when it is read. The hook for that
    is not part of ssl's documented interface; a test of every supported Python holds it.
    """
    context.verify_flags |= _NO_CHECK_TIME | _PARTIAL_CHAIN

    def seen(_c: Any, direction: str, _v: Any, _t: Any, message: Any, data: bytes) -> None:
        if direction != "read" or message != _CERTIFICATE or len(data) < 8:
            return
        at = 5 + data[4]  # after the message's header and its context
        size = int.from_bytes(data[at + 3 : at + 6], "big")
        with suppress(ssl.SSLError, ValueError):  # what is no certificate fails in the handshake
            context.load_verify_locations(cadata=bytes(data[at + 6 : at + 6 + size]))

    context._msg_callback = seen  # type: ignore[attr-defined]


class Session:
    """One connection's TLS, fed with what the socket brought."""

    def __init__(self, context: ssl.SSLContext, peer_name: str | None) -> None:
        self._context = context
        self._peer_name = peer_name
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_side=True)
        self.ready = False
        self.proven: bytes | None = None  # the node that the peer has proven to be; none in CA mode

    def feed(self, data: bytes) -> bytes:
        """Takes what came and returns what it says; ssl.SSLError ends the connection. What is to be sent is pending."""
        self._in.write(data)
        if not self.ready:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                return b""
            finally:
                if self._in.eof:
                    self.close()
            self._done()
        parts = []
        try:
            while part := self._tls.read(1 << 16):
                parts.append(part)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            if not parts:
                raise
        return b"".join(parts)

    def _done(self) -> None:
        self.close()
        if self._tls.selected_alpn_protocol() != ALPN:
            raise ssl.SSLError(f"the peer does not speak {ALPN}")
        der = self._tls.getpeercert(binary_form=True)
        if der is None:
            raise ssl.SSLError("the peer showed no certificate")
        if self._peer_name is None:
            self.proven = certificate_id(der)
        elif not named(self._tls.getpeercert() or {}, self._peer_name):
            raise ssl.SSLError(f"the peer's certificate is not for {self._peer_name!r}")
        self.ready = True

    def write(self, data: bytes) -> bytes:
        """The bytes of the wire for data."""
        self._tls.write(data)
        return self._out.read()

    def pending(self) -> bytes:
        return self._out.read()

    def close(self) -> None:
        """Lets go of the hook, which holds the context."""
        self._context._msg_callback = None  # type: ignore[attr-defined]


def named(certificate: Any, name: str) -> bool:
    """Says whether a certificate, as getpeercert gives it, is for a DNS name, an IP address or a URI."""
    names = [(str(kind), str(value)) for kind, value in certificate.get("subjectAltName", ())]
    if "://" in name:
        return ("URI", name) in names
    with suppress(ValueError):
        address = ipaddress.ip_address(name)
        return any(kind == "IP Address" and ipaddress.ip_address(v.strip()) == address for kind, v in names)
    wanted = name.lower().rstrip(".")
    for kind, shown in names:
        value = shown.lower().rstrip(".")
        if kind == "DNS" and (
            value == wanted or (value.startswith("*.") and "." in wanted and wanted.split(".", 1)[1] == value[2:])
        ):
            return True
    return False
