"""A lab's own authority of certificates: its fingerprint is in the code that a host joins with."""

from __future__ import annotations

import hashlib
import re
import ssl
from pathlib import Path
from typing import Final

from gonogo.errors import FieldError

SEPARATOR: Final = "."
"""It stands between the secret of a code and a fingerprint."""
_CERTIFICATE: Final = re.compile(
    "-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL
)


def fingerprints(ca_file: str) -> list[str]:
    """Return the SHA-256 of each certificate in a file, in hexadecimal. Raises FieldError."""
    try:
        texts = _CERTIFICATE.findall(Path(ca_file).read_text())
        digests = [hashlib.sha256(ssl.PEM_cert_to_DER_cert(text)).hexdigest() for text in texts]
    except (OSError, ValueError) as problem:
        raise FieldError("GONOGO_CA_FILE", ca_file, f"can't be read: {problem}") from problem
    if not digests:
        raise FieldError("GONOGO_CA_FILE", ca_file, "has no certificate", limit="a file in PEM")
    return digests


def check(code: str, ca_file: str | None) -> None:
    """Raise FieldError unless this host believes the authority that a code names.

    A code without a fingerprint is of a service whose authority every system knows.
    """
    _, _, fingerprint = code.partition(SEPARATOR)
    if not fingerprint:
        return
    remedy = "the file with the certificate of the service's authority"
    if ca_file is None:
        raise FieldError("GONOGO_CA_FILE", None, "is needed for this code", limit=remedy)
    if fingerprint not in fingerprints(ca_file):
        raise FieldError("GONOGO_CA_FILE", ca_file, "is of another authority", limit=remedy)
