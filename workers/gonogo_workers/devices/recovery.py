"""The recovery ladder of a device: re-open, reset, reload the driver, the host's hook. A deadline
for each rung, the canary after each.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from gonogo.errors import FieldError
from gonogo_settings import Settings
from gonogo_workers.devices import programs
from gonogo_workers.devices.discovery import Device

log = logging.getLogger(__name__)

LAST_WORDS = 2000
"""Characters of a failed command's output that are kept as evidence."""


@dataclass(frozen=True)
class Rung:
    """One thing to try; without a command it is only a fresh child that opens the device again,
    which the canary's is.
    """

    name: str
    command: tuple[str, ...] = ()
    deadline_s: float = 0.0


@dataclass(frozen=True)
class Step:
    """What a rung came to."""

    rung: str
    outcome: str
    output: str = ""


@dataclass(frozen=True)
class Recovery:
    """Whether the device is good again, by which rung, and everything that was tried."""

    good: bool
    reason: str
    steps: tuple[Step, ...] = field(default_factory=tuple)

    def to_json(self) -> list[dict[str, Any]]:
        """The steps in plain JSON: the evidence of the change of health."""
        return [asdict(step) for step in self.steps]


def rungs(settings: Settings, device: Device) -> tuple[Rung, ...]:
    """The ladder of this device: the settings' commands, and for a chip `tt-smi -r` where nothing
    else is said and it is installed.

    Raises FieldError for a command that can't be read.
    """
    reset = settings.reset_device
    if reset is None and device.chip is not None and shutil.which(settings.tt_smi):
        reset = f"{settings.tt_smi} -r {{index}}"
    found = [Rung("re-open")]
    for name, command, deadline_s in (
        ("reset_device", reset, settings.reset_device_deadline_s),
        ("reload_driver", settings.reload_driver, settings.reload_driver_deadline_s),
        ("reset_host", settings.reset_host, settings.reset_host_deadline_s),
    ):
        if command:
            try:
                found.append(Rung(name, programs.words_of(command, device.places), deadline_s))
            except ValueError as problem:
                places = "a command; {index}, {pci}, {serial}, {name}"
                raise FieldError(
                    f"GONOGO_{name.upper()}", command, str(problem), limit=places
                ) from problem
    return tuple(found)


def climb(
    ladder: Sequence[Rung],
    sing: Callable[[], str | None],
    *,
    tell: Callable[[str], None] = lambda _: None,
    stopping: Callable[[], bool] = lambda: False,
) -> Recovery:
    """Climb until the canary sings. `sing` runs it and says what is wrong (None: nothing); `tell`
    hears each rung's name.

    After a command that failed or hung the canary isn't asked (it could only say the same again);
    the next rung is tried. Stops between two rungs when `stopping()`.
    """
    steps: list[Step] = []
    for rung in ladder:
        if stopping():
            break
        tell(rung.name)
        if rung.command:
            done = programs.run(rung.command, rung.deadline_s)
            if not done.well:
                log.warning("recovery, %s: %s", rung.name, done.trouble)
                steps.append(Step(rung.name, str(done.trouble), done.output[-LAST_WORDS:]))
                continue
        wrong = sing()
        steps.append(Step(rung.name, "the canary passed" if wrong is None else wrong))
        if wrong is None:
            return Recovery(True, f"the canary passed after {rung.name}", tuple(steps))
        log.warning("recovery, %s: %s", rung.name, wrong)
    last = steps[-1] if steps else None
    return Recovery(
        False,
        f"{last.rung}: {last.outcome}" if last else "stopped before anything was tried",
        tuple(steps),
    )
