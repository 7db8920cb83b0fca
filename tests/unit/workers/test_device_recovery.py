"""Recovery: its steps, the commands that run, and where it ends."""

from __future__ import annotations

import shlex
import sys
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
REOPEN = RecoveryStep("re-open")


def reset(program: str, deadline_s: float = 60, name: str = "reset_device") -> RecoveryStep:
    return RecoveryStep(name, (sys.executable, "-c", program), deadline_s)


WORKS, FAILS = "print('reset')", "print('no such device'); raise SystemExit(4)"


def test_the_steps_are_the_settings_commands_in_order_else_tt_smi_where_it_is(
    tmp_path: Path,
) -> None:
    smi = tmp_path / "tt-smi"
    smi.write_text("#!/bin/sh\n")
    smi.chmod(0o755)
    commands = {"reset_device": "mend {index}", "reload_driver": "reload"}
    all_steps = [
        ("reset_device", ("mend", "3"), 120),
        ("reload_driver", ("reload",), 300),
        ("reset_host", ("switch", "wormhole:3"), 900),
    ]
    for settings, device, steps in (
        (Settings(tt_smi=str(smi)), ON_CHIP, [("reset_device", (str(smi), "-r", "3"), 120)]),
        (Settings(tt_smi=str(smi)), VIRTUAL, []),
        (Settings(tt_smi=str(tmp_path / "missing")), ON_CHIP, []),
        (Settings(**commands, reset_host="switch {name}"), ON_CHIP, all_steps),
    ):
        planned = (REOPEN, *(RecoveryStep(*step) for step in steps))
        assert recovery.planned_steps(settings, device) == planned
    with pytest.raises(JobError, match="GONOGO_RESET_HOST: unknown name 'password'"):
        recovery.planned_steps(Settings(reset_host="switch {password}"), ON_CHIP)


def test_recovery_ends_with_the_first_step_after_which_the_canary_passes() -> None:
    planned = [REOPEN, reset(FAILS), reset(WORKS, name="reload"), reset(WORKS, name="reset_host")]
    stages: list[str] = []
    canaries = iter(["the numbers are wrong", None, "one canary too many"])
    result = recovery.recover(planned, lambda: next(canaries), tell=stages.append)
    assert stages == ["re-open", "reset_device", "reload"]
    assert (result.good, result.reason) == (True, "the canary passed after reload")
    opened, failed, reloaded = result.steps
    assert (opened.outcome, reloaded.outcome) == ("the numbers are wrong", "the canary passed")
    assert failed.outcome.endswith("ended with status 4")
    assert failed.output == "no such device\n"
    assert next(canaries) == "one canary too many"  # after a command that failed none runs


def test_a_reset_that_hangs_is_ended_at_its_deadline_and_the_next_step_mends(
    tmp_path: Path,
) -> None:
    pid_file = tmp_path / "pid"
    stall = (
        f"import os, time; open({str(pid_file)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    )
    canaries = iter(["silent", None])
    planned = [REOPEN, reset(stall, 1), reset(WORKS, name="reset_host")]
    result = recovery.recover(planned, lambda: next(canaries))
    assert (result.good, result.reason) == (True, "the canary passed after reset_host")
    assert result.steps[1].outcome.endswith("did not end within 1 s")
    assert not psutil.pid_exists(int(pid_file.read_text()))


def test_the_last_step_says_why_a_device_is_not_good_and_a_stop_ends_it_between_two() -> None:
    canaries = iter(["silent", "still silent"])
    result = recovery.recover([REOPEN, reset(WORKS)], lambda: next(canaries))
    assert (result.good, result.reason) == (False, "reset_device: still silent")
    assert [step.outcome for step in result.steps] == ["silent", "still silent"]
    stages: list[str] = []
    stopped = recovery.recover(
        [REOPEN, reset(FAILS)], lambda: "silent", tell=stages.append, stopping=lambda: bool(stages)
    )
    assert (stopped.good, stopped.reason) == (False, "re-open: silent")
    nothing = recovery.recover([REOPEN], lambda: None, stopping=lambda: True)
    assert (nothing.good, nothing.steps) == (False, ())
    assert nothing.reason == "stopped before anything was tried"


def test_a_command_of_the_settings_has_the_worker_s_credentials(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A kernel's process has none of these; the command of a power switch may need one."""
    monkeypatch.setenv("POWER_SWITCH_TOKEN", "secret")
    monkeypatch.setenv("GONOGO_SECRET_KEY", "ours")
    names = "('POWER_SWITCH_TOKEN' in os.environ) + ('GONOGO_SECRET_KEY' in os.environ)"
    step = reset(f"import os; raise SystemExit(1 + 2 * {names})", name="reset_host")
    result = recovery.recover([step], lambda: None)
    assert result.reason == f"reset_host: {shlex.quote(sys.executable)} ended with status 3"
