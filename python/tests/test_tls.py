"""Who is at the other end: pins, authorities, and what is no TLS."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
from pathlib import Path

import pytest
from conftest import PATIENCE, RealFrontend, Scripted

from laneway import Authority, Config, End, EndType, Identity, Node
from laneway.identity import as_file, certificate_id
from laneway.tls import ALERT_VERSION, named
from laneway.wire import Away


def client(identity: Identity | None, *, alpn: str = "laneway/1") -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols([alpn])
    if identity is not None:
        with as_file(identity.certificate + identity.key) as path:
            context.load_cert_chain(path)
    return context


async def dial(node: Node, context: ssl.SSLContext) -> Scripted:
    host, _, port = node.descriptor()["planes"][0]["endpoints"][0].rpartition(":")
    return Scripted(*await asyncio.open_connection(host, int(port), ssl=context))


async def tls_worker() -> Node:
    node = Node(Config(planes=("tls",), host="127.0.0.1"))
    await node.listen()
    return node


async def test_the_worker_is_who_its_record_says() -> None:
    node, identity = await tls_worker(), Identity.generate()
    f = await dial(node, client(identity))
    shown = f.writer.get_extra_info("ssl_object")
    assert certificate_id(shown.getpeercert(binary_form=True)) == node.identity.id
    assert shown.version() == "TLSv1.3" and shown.selected_alpn_protocol() == "laneway/1"
    await f.greet(node=identity.id)
    f.close()
    await node.close()


async def test_a_node_that_is_another() -> None:
    node = await tls_worker()
    f = await dial(node, client(Identity.generate()))
    f.writer.write(f.hello(node=Identity.generate().id).encode())
    assert await f.away() == Away.IDENTITY
    assert not node.links
    await node.close()


@pytest.mark.parametrize("what", ["no certificate", "another protocol", "no key"])
async def test_handshakes_that_fail(what: str) -> None:
    node = await tls_worker()
    identity = None if what == "no certificate" else Identity.generate()
    context = client(identity, alpn="h2" if what == "another protocol" else "laneway/1")
    if what == "no key":
        context.maximum_version = ssl.TLSVersion.TLSv1_2  # and an old TLS
    with pytest.raises((ssl.SSLError, OSError, asyncio.IncompleteReadError, AssertionError)):
        f = await dial(node, context)
        await f.greet(node=identity.id if identity else b"F" * 16)
    assert not node.links
    await node.close()


async def test_what_is_no_tls() -> None:
    node = await tls_worker()
    f = await Scripted.dial(node)
    f.writer.write(f.hello().encode())
    assert await asyncio.wait_for(f.reader.read(), PATIENCE) == ALERT_VERSION
    await node.close()


async def test_a_link_of_a_proven_node_is_not_taken_over_in_the_clear() -> None:
    node = Node(Config(planes=("tls", "tcp"), host="127.0.0.1"))
    await node.listen()
    identity = Identity.generate()
    f = await dial(node, client(identity))
    worker = await f.greet(node=identity.id)
    host, _, port = node.descriptor()["planes"][1]["endpoints"][0].rpartition(":")
    g = Scripted(*await asyncio.open_connection(host, int(port)))
    g.writer.write(g.hello(node=identity.id, serial=2, peer_secret=worker.own_secret).encode())
    assert await g.away() == Away.IDENTITY
    assert len(node.links) == 1
    await node.close()


def test_names() -> None:
    shown = {"subjectAltName": (("DNS", "*.w.example"), ("URI", "spiffe://c/worker"), ("IP Address", "10.0.0.1"))}
    for name, holds in (
        ("a.w.example", True), ("w.example", False), ("a.b.w.example", False), ("spiffe://c/worker", True),
        ("spiffe://c/other", False), ("10.0.0.1", True), ("10.0.0.2", False),
    ):  # fmt: skip
        assert named(shown, name) is holds, name


def authority(folder: Path) -> dict[str, Path]:
    """Files of an authority and of certificates that it has signed: frontend, worker."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    now = datetime.datetime.now(datetime.timezone.utc)
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")])
    files = {}

    def write(name: str, raw: bytes) -> None:
        files[name] = folder / name
        files[name].write_bytes(raw)

    for who in ("ca", "frontend", "worker"):
        key = ca_key if who == "ca" else ec.generate_private_key(ec.SECP256R1())
        subject = ca_name if who == "ca" else x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, who)])
        built = (
            x509.CertificateBuilder().subject_name(subject).issuer_name(ca_name).public_key(key.public_key())
            .serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=who == "ca", path_length=None), critical=True)
        )  # fmt: skip
        if who != "ca":
            names = [x509.DNSName(f"{who}.example"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
            uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
            built = built.add_extension(x509.SubjectAlternativeName(names), critical=False)
            built = built.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        signed = built.sign(ca_key, hashes.SHA256())
        write(f"{who}.pem", signed.public_bytes(serialization.Encoding.PEM))
        traditional = serialization.PrivateFormat.TraditionalOpenSSL
        none = serialization.NoEncryption()
        write(f"{who}.key", key.private_bytes(serialization.Encoding.PEM, traditional, none))
    return files


@pytest.mark.slow
@pytest.mark.parametrize("expected", ["frontend.example", "somebody.example"])
async def test_authority(frontend_binary: str, tmp_path: Path, expected: str) -> None:
    """CA mode against the real frontend; one of another name is not taken."""
    files = {name: str(path) for name, path in authority(tmp_path).items()}
    own = Authority(files["ca.pem"], files["worker.pem"], files["worker.key"], expected)
    node = Node(Config(planes=("tls",), host="127.0.0.1", authority=own))
    await node.listen()
    flags = ["-plane", "tls", "-ca", files["ca.pem"], "-cert", files["frontend.pem"], "-key", files["frontend.key"]]
    flags += ["-peer-name", "worker.example", "-patience", "2s" if expected.startswith("some") else "20s"]
    if expected == "somebody.example":
        frontend = await RealFrontend.start(frontend_binary, node.descriptor(), *flags, ready=False)
        assert await asyncio.wait_for(frontend.process.wait(), PATIENCE) == 1
        assert not node.links
    else:
        frontend = await RealFrontend.start(frontend_binary, node.descriptor(), *flags)
        frontend.say("mint 1")
        i, terms = await frontend.next_terms()
        stream = node.attach(terms)
        stream.put(b"%d:0 " % i)
        stream.finish(End(EndType.COMPLETE))
        node.flush()
        await frontend.ended(1)
        assert frontend.ends[i][:3] == ["complete", "1", "0"]
        frontend.process.kill()
        await frontend.process.wait()
    await frontend.reader
    await node.close()
