"""TLS in front of a server of the tests: a certificate authority, and a hop that speaks TLS."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from patience import WAIT_S

_USES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
    *("key_agreement", "crl_sign", "encipher_only", "decipher_only"),
)
_SIGNS = x509.KeyUsage(**dict.fromkeys(_USES, False), key_cert_sign=True)
"""The purpose of an authority's key: to sign certificates."""


class Authority:
    """A certificate authority of its own; `file` is its certificate."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "ca.crt"
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tests")])
        sealed = self._certificate(self._name, self._key.public_key()).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        # Python 3.13 and newer ask for these (VERIFY_X509_STRICT)
        sealed = sealed.add_extension(_SIGNS, critical=True)
        sealed = sealed.add_extension(
            x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False
        )
        self.file.write_bytes(_pem(sealed.sign(self._key, hashes.SHA256())))

    def issue(self, host: str) -> Path:
        """Return a file with a certificate for the host and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
        unsigned = self._certificate(name, key.public_key()).add_extension(
            x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False
        )
        unsigned = unsigned.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
            critical=False,
        )
        file = self.folder / f"{host}.pem"
        private = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        file.write_bytes(_pem(unsigned.sign(self._key, hashes.SHA256())) + private)
        return file

    def _certificate(
        self, name: x509.Name, key: ec.EllipticCurvePublicKey
    ) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
        )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


@contextmanager
def hop(port: int, certificate: Path) -> Iterator[int]:
    """Speak TLS on another port of this machine for a server on `port`; yield that other port."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(_copy(reader, to_server), _copy(from_server, writer))

    async def start() -> asyncio.Server:
        return await asyncio.start_server(handle, "localhost", 0, ssl=context, family=2)

    async def stop() -> None:
        server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    server = asyncio.run_coroutine_threadsafe(start(), loop).result(WAIT_S)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        asyncio.run_coroutine_threadsafe(stop(), loop).result(WAIT_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(WAIT_S)
        loop.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass  # the other side went away
    finally:
        writer.close()
