"""The one switch between numba and plain NumPy.

`jit` compiles a function where numba is installed, and else returns it unchanged. numba is loaded
when the first compiled function is called: a process that judges small tensors never waits for it.

numba caches compiled code by the file of the function itself. After an edit of a function or a
constant that other files use, their cached code would be stale. Therefore the cache folder is named
after all sources that compiled code can come from.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache, update_wrapper
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

F = TypeVar("F", bound=Callable[..., Any])


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):  # something refuses to import it
        return False


HAVE_NUMBA = _is_installed("numba")
"""numba is an accelerator, never a requirement: NumPy is the definition."""
MIN_ELEMENTS = 2**18
"""The largest tensor that a short process compares without compiled code.

NumPy takes some .2 s for it. Loading compiled code takes .7 s, and compiling it half a minute.
"""
_in_every_case = threading.Event()


def pays(elements: int) -> bool:
    """Return whether compiled code shall work on a tensor of so many elements."""
    return HAVE_NUMBA and (elements > MIN_ELEMENTS or _in_every_case.is_set())


def is_loaded() -> bool:
    """Return whether compiled code works already, so that more of it costs next to nothing.

    Only functions whose results are those of NumPy to the bit may ask for it: what was judged
    before must not matter.
    """
    return Compiled.is_used


def load_for_all() -> None:
    """Use compiled code for small tensors, too: in a process that judges thousands of them."""
    _in_every_case.set()


DOMAIN = Path(__file__).resolve().parent.parent
SOURCES = (DOMAIN / "numerics", DOMAIN / "kernels")
"""The folders of compiled functions and of the constants in them."""
PREFIX = "gonogo-"


def jit(function: F) -> F:
    """Compile a per-block loop: without the GIL, cached on disk, with IEEE semantics.

    Several threads run it at once. Never `parallel=True` (numba's workqueue layer aborts the
    process when entered from several threads) and never `fastmath` (it would change the arithmetic
    that is the workload here). `error_model="numpy"`: x/0 is inf, as in NumPy. Where no folder can
    be written, nothing is cached, and each process compiles for itself.
    """
    return cast(F, Compiled(function)) if HAVE_NUMBA else function


class Compiled:
    """A function that numba compiles, or loads, when it is first called."""

    _loading = threading.RLock()
    is_used = False
    """Whether one of these functions was called."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.py_func = function
        self._dispatcher: Any = None
        update_wrapper(self, function)

    @property
    def dispatcher(self) -> Any:
        """Numba's own object for the function."""
        if self._dispatcher is None:
            from numba import njit

            with Compiled._loading:
                if self._dispatcher is None:
                    folder = cache_folder()
                    cached = folder is not None
                    with _caching_in(folder):
                        compiled = njit(nogil=True, cache=cached, error_model="numpy")(self.py_func)
                    self._dispatcher = compiled
                    Compiled.is_used = True
        return self._dispatcher

    @property
    def _numba_type_(self) -> Any:
        """The type by which other compiled functions call this one."""
        return self.dispatcher._numba_type_

    def __call__(self, *arguments: Any) -> Any:
        compiled = self._dispatcher
        return (self.dispatcher if compiled is None else compiled)(*arguments)


@lru_cache(maxsize=1)
def cache_folder() -> Path | None:
    """Return the folder of these sources' compiled code; None where no folder can be written.

    It is in NUMBA_CACHE_DIR, else beside the sources, else in the user's cache folder. It is
    created here, and the folder of an earlier state of these sources is removed.
    """
    named = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("GONOGO_NUMBA_CACHE_DIR")
    user = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "gonogo"
    for place in (*([Path(named).absolute()] if named else []), DOMAIN / "__pycache__", user):
        folder = place / stamp()
        try:
            new = not folder.exists()
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
        except OSError:
            continue
        if new:
            _remove_older(folder)
        return folder
    return None


def plain(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array as compiled code needs it: C-contiguous and writable.

    Other arrays are copied, because numba would compile a second version for read-only ones.
    """
    # C-contiguous, writable, and aligned, as all arrays are that NumPy makes
    return array if array.flags.carray else np.array(array, order="C")


def stamp(sources: tuple[Path, ...] = SOURCES) -> str:
    """Return a name for the state of the sources.

    It holds their place (checkouts may share a folder), and a hash of names and contents.
    """
    content = hashlib.sha256()
    for root in sources:
        for path in sorted(root.rglob("*.py")):
            text = path.read_bytes()
            content.update(f"{path.relative_to(root.parent).as_posix()}\0{len(text)}\0".encode())
            content.update(text)
    where = hashlib.sha256(str(sources[0].parent).encode()).hexdigest()[:8]
    return f"{PREFIX}{where}-{content.hexdigest()[:16]}"


def _remove_older(folder: Path) -> None:
    """Remove the folders of other states of the same sources.

    A process that still runs them creates its folder again when it needs it.
    """
    for other in folder.parent.glob(f"{folder.name.rpartition('-')[0]}-*"):
        if other != folder:
            shutil.rmtree(other, ignore_errors=True)


@contextmanager
def _caching_in(folder: Path | None) -> Iterator[None]:
    """Set numba's cache folder while a function is created, which is when numba reads it.

    Other packages' functions keep their own place.
    """
    import numba

    config: Any = numba.config
    before = config.CACHE_DIR
    config.CACHE_DIR = str(folder or "")
    try:
        yield
    finally:
        config.CACHE_DIR = before
