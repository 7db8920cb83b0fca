"""The environment of a kernel's process: a list of variables, and what the host adds to it.

The host adds names in GONOGO_CHILD_VARIABLES, and a build's own variables in its builds file.
Kernels are other people's code, and an environment collects secrets: of this project, of clouds, of
package registries. So this is a list of what a program needs, not of what must be hidden.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Final

from gonogo.settings import load as load_settings

ALLOWED: Final = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TZ", "TERM", "NO_COLOR"),
        *("LANG", "LANGUAGE", "XDG_CACHE_HOME", "VIRTUAL_ENV", "CONDA_PREFIX", "PYENV_ROOT"),
        *("LD_LIBRARY_PATH", "LD_PRELOAD", "DYLD_LIBRARY_PATH", "CC", "CXX", "CUDA_HOME"),
        *("ARCH_NAME", "WH_ARCH_YAML", "GONOGO_NUMBA_CACHE_DIR"),
    }
)
BEGINNINGS: Final = (
    *("LC_", "PYTHON", "PYTEST_", "PYENV_VERSION"),
    *("NUMBA_", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "BLIS_", "MALLOC_"),
    *("TT_", "TTNN_", "TTML_", "TTSIM_"),
    *("TORCH", "PYTORCH_", "TRITON_", "CUDA_", "CUBLAS_", "CUDNN_", "NVIDIA_", "HIP_", "ROCM_"),
    *("ASAN_", "UBSAN_", "TSAN_", "LSAN_"),
)
"""Variables of interpreters, numeric libraries and devices, by the beginning of their names."""
SUSPICIOUS: Final = ("TOKEN", "SECRET", "PASSW", "CREDENTIAL", "KEY", "AUTH")
"""Parts of names that a mere beginning doesn't let through; the full name in the setting does."""


def child_environment(added: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a process that runs code under test.

    `added` is what the builds file sets for the build. The variables of
    GONOGO_CHILD_VARIABLES (names, or beginnings with a star) are passed on.
    """
    further = load_settings().child_variables
    passed = {name: value for name, value in os.environ.items() if _passes(name, further)}
    return passed | dict(added or {})


def command_environment() -> dict[str, str]:
    """Return the environment of a command of the host's own settings, such as a power switch's.

    It may need credentials of its own, but nothing of ours.
    """
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GONOGO_") and name != "CREDENTIALS_DIRECTORY"
    }


def _passes(name: str, further: Sequence[str]) -> bool:
    if name in ALLOWED or name in further:
        return True
    named = tuple(entry.removesuffix("*") for entry in further if entry.endswith("*"))
    if name.startswith("GONOGO_"):
        return False
    harmless = not any(part in name.upper() for part in SUSPICIOUS)
    return harmless and name.startswith((*BEGINNINGS, *named))
