"""Recovery: its steps, the commands that run, and where it ends."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from gonogo.errors import JobError
from gonogo.settings import Settings
from gonogo_workers.devices import recovery
from gonogo_workers.devices.chip import Chip
from gonogo_workers.devices.discovery import Device
from gonogo_workers.devices.recovery import RecoveryStep

VIRTUAL = Device("emulator", 0, "wormhole", "n150", "lab-1")
ON_CHIP = Device("ttnn", 3, "wormhole", "n150", "lab-1", chip=Chip(3, "wormhole"))


def command(program: str) -> tuple[str, ...]:
    return sys.executable, "-c", program


WORKS, FAILS = command("print('reset')"), command("print('no such device'); raise SystemExit(4)")


def answers(*wrong: str | None) -> Iterator[str | None]:
    """The canary's answers, one after the other."""
    return iter(wrong)


def test_a_chip_is_reset_by_tt_smi_where_that_is_installed(tmp_path: Path) -> None:
    smi = tmp_path / "tt-smi"
    smi.write_text("#!/bin/sh\n")
    smi.chmod(0o755)
    usual = Settings(tt_smi=str(smi))
    reset = RecoveryStep("reset_device", (str(smi), "-r", "3"), 120)
    assert recovery.planned_steps(usual, ON_CHIP) == (RecoveryStep("re-open"), reset)
    assert recovery.planned_steps(usual, VIRTUAL) == (RecoveryStep("re-open"),)
    missing = Settings(tt_smi=str(tmp_path / "missing"))
    assert recovery.planned_steps(missing, ON_CHIP) == (RecoveryStep("re-open"),)


def test_the_commands_of_the_settings_are_tried_in_order(tmp_path: Path) -> None:
    settings = Settings(
        reset_device="mend {index}",
        reload_driver="reload",
        reset_host="switch {name}",
    )
    assert recovery.planned_steps(settings, ON_CHIP)[1:] == (
        RecoveryStep("reset_device", ("mend", "3"), 120),
        RecoveryStep("reload_driver", ("reload",), 300),
        RecoveryStep("reset_host", ("switch", "wormhole:3"), 900),
    )
    with pytest.raises(JobError, match="GONOGO_RESET_HOST: unknown name 'password'"):
        recovery.planned_steps(Settings(reset_host="switch {password}"), ON_CHIP)


def test_recovery_ends_with_the_first_step_after_which_the_canary_passes() -> None:
    planned = [
        RecoveryStep("re-open"),
        RecoveryStep("reset_device", FAILS, 60),
        RecoveryStep("reload_driver", WORKS, 60),
        RecoveryStep("reset_host", WORKS, 60),
    ]
    stages: list[str] = []
    canaries = answers("the numbers are wrong", None, "one canary too many")
    result = recovery.recover(planned, lambda: next(canaries), tell=stages.append)
    assert stages == ["re-open", "reset_device", "reload_driver"]
    assert (result.good, result.reason) == (True, "the canary passed after reload_driver")
    assert [step.rung for step in result.steps] == stages
    opened, reset, reloaded = result.steps
    assert opened.outcome == "the numbers are wrong"
    assert reset.outcome.endswith("ended with status 4")
    assert reset.output == "no such device\n"
    assert reloaded.outcome == "the canary passed"
    assert next(canaries) == "one canary too many"  # after a command that failed none runs


def test_a_reset_that_hangs_is_ended_at_its_deadline_and_the_next_step_mends(
    tmp_path: Path,
) -> None:
    pid_file = tmp_path / "pid"
    stall = (
        f"import os, time; open({str(pid_file)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    )
    planned = [
        RecoveryStep("re-open"),
        RecoveryStep("reset_device", command(stall), 1),
        RecoveryStep("reset_host", WORKS, 60),
    ]
    canaries = answers("silent", None)
    result = recovery.recover(planned, lambda: next(canaries))
    assert (result.good, result.reason) == (True, "the canary passed after reset_host")
    assert result.steps[1].outcome.endswith("did not end within 1 s")
    assert not psutil.pid_exists(int(pid_file.read_text()))


def test_the_last_step_says_why_a_device_is_not_good() -> None:
    planned = [RecoveryStep("re-open"), RecoveryStep("reset_device", WORKS, 60)]
    canaries = answers("silent", "still silent")
    result = recovery.recover(planned, lambda: next(canaries))
    assert (result.good, result.reason) == (False, "reset_device: still silent")
    assert [step.outcome for step in result.steps] == ["silent", "still silent"]


def test_a_stop_ends_recovery_between_two_steps() -> None:
    planned = [RecoveryStep("re-open"), RecoveryStep("reset_device", FAILS, 60)]
    stages: list[str] = []
    result = recovery.recover(
        planned, lambda: "silent", tell=stages.append, stopping=lambda: bool(stages)
    )
    assert (result.good, result.reason) == (False, "re-open: silent")
    nothing = recovery.recover(planned, lambda: None, stopping=lambda: True)
    assert (nothing.good, nothing.steps) == (False, ())
    assert nothing.reason == "stopped before anything was tried"


def test_a_command_of_the_settings_has_the_worker_s_credentials(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A kernel's process has no such variable; the command of a power switch may need one."""
    monkeypatch.setenv("POWER_SWITCH_TOKEN", "secret")
    monkeypatch.setenv("GONOGO_SECRET_KEY", "ours")
    program = "import os; raise SystemExit(1 + 2 * ('POWER_SWITCH_TOKEN' in os.environ)"
    step = RecoveryStep(
        "reset_host", command(f"{program} + ('GONOGO_SECRET_KEY' in os.environ))"), 60
    )
    result = recovery.recover([step], lambda: None)
    assert result.reason == f"reset_host: {shlex.quote(sys.executable)} ended with status 3"
