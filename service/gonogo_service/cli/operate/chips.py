"""`gonogo chips`: list this host's chips, and lock one for a program of your own.

The lock keeps the program from sharing a chip with a worker.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import uuid
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

import gonogo.settings
from gonogo.cli.kit import show
from gonogo.cli.kit.body_options import JSON
from gonogo.cli.kit.groups import group
from gonogo.errors import FieldError, InfrastructureError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gonogo_workers.devices.chip import Chip

app = group()


def _chips(settings: gonogo.settings.Settings) -> Sequence[Chip]:
    from gonogo_workers.devices import chips

    return chips.look(settings.tt_smi)


@app.command("list")
def list_(as_json: bool = JSON) -> None:
    """List the chips of this host, as the kernel driver lists them, else tt-smi."""
    chips = _chips(gonogo.settings.load())
    if as_json:
        show.print_json({"chips": [{**asdict(chip), "name": chip.name} for chip in chips]})
        return
    out = show.console()
    for chip in chips:
        facts = (str(chip.index), chip.name, chip.board, chip.serial, chip.pci)
        out.print(" ".join(filter(None, facts)), markup=False, highlight=False)
    if not chips:
        out.print("no chips: neither the driver nor tt-smi lists one")


@app.command(context_settings={"ignore_unknown_options": True})
def lock(
    command: list[str] = typer.Argument(
        ..., metavar="-- COMMAND...", help="The program to run, and its arguments."
    ),
    device: str = typer.Option(
        "0",
        "--device",
        help="Index, name, serial number or PCI address of a chip; or a virtual device's name.",
    ),
    wait: bool = typer.Option(
        True, "--wait/--no-wait", help="Wait for a worker's current chunk to end; else exit with 3."
    ),
) -> None:
    """Run a program while no worker uses the device (exit code: the program's)."""
    from gonogo_workers.devices import locks
    from gonogo_workers.executors.kernel_host import HOST_RUN_VARIABLE

    settings = gonogo.settings.load()
    chips = _chips(settings)
    names = [chip.name for chip in chips if chip.called(device)]
    names += [device] if ":" in device else []
    if not names:
        virtual = "no chip here; a virtual device is named in full, such as emulator:0"
        there = ", ".join(chip.name for chip in chips) or virtual
        raise FieldError("device", device, "is no device of this host", limit=there)
    lock = locks.acquire(locks.folder_of(settings), names[0], lambda: wait, threading.Event())
    mark = uuid.uuid4().hex
    try:
        # The program gets a share of the lock: the chip stays taken as long as one of us lives, and
        # the next worker ends what is left of it. It is in our process group: it may read the
        # terminal.
        environment = {**os.environ, HOST_RUN_VARIABLE: mark}
        try:
            process = subprocess.Popen(command, pass_fds=(lock.fd,), env=environment)
        except OSError as problem:
            text = f"{command[0]} can't be started: {problem.strerror}"
            raise InfrastructureError(text) from problem
        lock.record(process.pid, mark)
        # Ctrl-C reaches the program as well, which decides what it means
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda number, _frame: process.send_signal(number))
        status = process.wait()
    finally:
        lock.close()
    raise typer.Exit(status if status >= 0 else 128 - status)
