"""The recovery of a device in steps: re-open, reset, reload the driver, the host's hook.

Each step has a deadline; the canary runs after each.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gonogo.errors import JobError
from gonogo.settings import Settings
from gonogo_workers.devices import programs
from gonogo_workers.devices.discovery import Device

log = logging.getLogger(__name__)

LAST_WORDS = 2000
"""Characters of a failed command's output that are kept as evidence."""
RESET_DEVICE_S, RELOAD_DRIVER_S, RESET_HOST_S = 120.0, 300.0, 900.0
"""A command that takes longer has failed."""


@dataclass(frozen=True)
class RecoveryStep:
    """One step to try.

    Without a command it is only a fresh child that opens the device again, as the canary's does.
    """

    name: str
    command: tuple[str, ...] = ()
    deadline_s: float = 0.0


@dataclass(frozen=True)
class StepOutcome:
    """The outcome of a step."""

    rung: str
    outcome: str
    output: str = ""


@dataclass(frozen=True)
class Recovery:
    """The result of a recovery: whether the device is good, by which step, and all steps tried."""

    good: bool
    reason: str
    steps: tuple[StepOutcome, ...] = field(default_factory=tuple)


def planned_steps(settings: Settings, device: Device) -> tuple[RecoveryStep, ...]:
    """Return the recovery steps of this device: the commands of the settings.

    For a chip the reset defaults to `tt-smi -r` where that is installed. Raises JobError for a
    command that can't be read.
    """
    reset = settings.reset_device
    if reset is None and device.chip is not None and shutil.which(settings.tt_smi):
        reset = f"{settings.tt_smi} -r {{index}}"
    planned = [RecoveryStep("re-open")]
    for name, command, deadline_s in (
        ("reset_device", reset, RESET_DEVICE_S),
        ("reload_driver", settings.reload_driver, RELOAD_DRIVER_S),
        ("reset_host", settings.reset_host, RESET_HOST_S),
    ):
        if command:
            try:
                planned.append(
                    RecoveryStep(name, programs.words_of(command, device.places), deadline_s)
                )
            except ValueError as problem:
                # without its value: a command for a power switch may hold a password
                allowed = "a command; {index}, {pci}, {serial}, {name}"
                words = f"GONOGO_{name.upper()}: {problem} (allowed: {allowed})"
                raise JobError(words) from problem
    return tuple(planned)


def recover(
    planned: Sequence[RecoveryStep],
    run_canary: Callable[[], str | None],
    *,
    tell: Callable[[str], None] = lambda _: None,
    stopping: Callable[[], bool] = lambda: False,
) -> Recovery:
    """Try the steps in order until the canary passes.

    `run_canary` returns what is wrong (None: nothing); `tell` receives each step's name. After a
    command that failed or hung, the canary is skipped (it could only fail again) and the next step
    is tried. Stops between two steps when `stopping()`.
    """
    steps: list[StepOutcome] = []
    for step in planned:
        if stopping():
            break
        tell(step.name)
        if step.command:
            done = programs.run(step.command, step.deadline_s, trusted=True)
            if not done.ok:
                log.warning("recovery, %s: %s", step.name, done.trouble)
                steps.append(StepOutcome(step.name, str(done.trouble), done.output[-LAST_WORDS:]))
                continue
        wrong = run_canary()
        steps.append(StepOutcome(step.name, "the canary passed" if wrong is None else wrong))
        if wrong is None:
            return Recovery(True, f"the canary passed after {step.name}", tuple(steps))
        log.warning("recovery, %s: %s", step.name, wrong)
    reason = (
        f"{steps[-1].rung}: {steps[-1].outcome}" if steps else "stopped before anything was tried"
    )
    return Recovery(False, reason, tuple(steps))
