"""A hostile kernel looks for secrets in its environment, in its ancestors, and in all of /proc."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from running_service import clean_environment, gonogo
from worker_process import Workplace

PR_CAPBSET_DROP, CAPABILITIES = 24, 41


def as_a_user() -> None:
    """Drop the capabilities by which root reads every process: then its programs are protected
    from each other as those of any user are."""
    for capability in range(CAPABILITIES):
        ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, capability)


MARK = f"mark-{uuid.uuid4().hex}"
"""In the secrets of this run alone: tests beside this one have their own."""


def secret(name: str) -> str:
    """Return a secret that the kernel recognizes."""
    return f"{MARK}-{name}-{'x' * 40}"


@pytest.fixture
def decoy() -> Iterator[subprocess.Popen[bytes]]:
    """A program of the same user with a secret in its environment: the search must find it."""
    process = subprocess.Popen(
        ["/bin/sleep", "600"], env={"DECOY": secret("decoy")}, preexec_fn=as_a_user
    )
    yield process
    process.kill()
    process.wait()


def search(file: Path) -> dict[str, str]:
    """Return the variables by which the kernel knows what to look for, and where to tell."""
    spared = {"TROUBLE_SPARED": str(os.getpid()), "TROUBLE_KRAM": MARK[::-1]}
    return {"TROUBLE_FOUND": str(file), **spared}


@pytest.mark.parametrize("source", ["environment", "file"])
def test_a_kernel_finds_no_secret(
    source: str, place: Workplace, tmp_path: Path, decoy: subprocess.Popen[bytes]
) -> None:
    key, file = secret("worker"), tmp_path / "secret_key"
    file.touch(0o600)
    file.write_text(f"{key}\n")
    by_file = {"GONOGO_SECRET_KEY_FILE": str(file)}
    worker = place.start_program(
        ["-P", "-m", "gonogo.cli", "worker", "--executor", "troublesome"],
        as_a_user,
        **(by_file if source == "file" else {"GONOGO_SECRET_KEY": key}),
        **search(tmp_path / "found"),
        GONOGO_GITHUB_TOKEN=secret("github"),
        GONOGO_GITHUB_WEBHOOK_SECRET=secret("deliveries"),
        GONOGO_TOKEN=secret("token"),
        AWS_SECRET_ACCESS_KEY=secret("cloud"),
    )
    place.beat(lambda body: body["worker"].endswith(f"/{worker.pid}"))
    answer = place.run("snoop", 1)
    assert answer.verdicts == {0: "pass"}, answer.finished
    with contextlib.suppress(PermissionError):  # of a user's own process, too: not dumpable
        assert b"GONOGO_TOKEN" not in Path(f"/proc/{worker.pid}/environ").read_bytes()
    *findings, above = (tmp_path / "found").read_text().splitlines()
    assert sorted(set(findings)) == [f"{decoy.pid} environ", f"{decoy.pid} mem"]
    assert int(above.removeprefix("ancestors ")) >= 3  # itself, its worker, this test


def test_a_local_command_s_kernel_finds_no_secret(
    tmp_path: Path, decoy: subprocess.Popen[bytes]
) -> None:
    kernel = "--kernel layernorm_bw --shape 1,1,32,64 --seeds 1 --build snoop"
    words = ["check", *kernel.split(), "--executor", "troublesome"]
    environment = clean_environment(
        GONOGO_EXECUTORS="troublesome=troublesome:Troublesome",
        GONOGO_TOKEN=secret("token"),
        NPM_TOKEN=secret("npm"),
        **search(tmp_path / "found"),
    )
    subprocess.run(gonogo(*words), env=environment, preexec_fn=as_a_user, check=True)
    *findings, _ = (tmp_path / "found").read_text().splitlines()
    assert sorted(set(findings)) == [f"{decoy.pid} environ", f"{decoy.pid} mem"]
