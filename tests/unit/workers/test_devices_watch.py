"""The watcher's log of a hang: which kernel is stuck, or who waits for whom."""

from __future__ import annotations

import pytest

from gonogo_workers.devices.watch import read

NAMES = (
    "k_id[  3]: kernels/reader_ln.cpp\nk_id[  4]: kernels/writer_ln.cpp\n"
    "k_id[  5]: kernels/layernorm.cpp\n"
)
OLD = "Core (x=1,y=1):    {points} rmsg:D0G|BNT smsg:{smsg} k_ids:4|3|5\n"
NEW = (
    "Device 0 worker core(x= {x},y= 2) virtual(x=18,y=20): {points}  rmsg:D0G|BNT h_id:  1 "
    "smsg:{smsg} k_ids:  4|  3|  5|  5|  5\n"
)
SLEEPING = (
    "Device 0 worker core(x= 0,y= 0) phys(x= 1,y= 1):   GW,   W,   W,   W,   W  "
    "rmsg:D1D|bnt smsg:DDDD k_ids:1|1|0\n"
)
IDLE = "Device 0 idleth core(x= 0,y= 0) virtual(x=1,y=1):   GW  rmsg:D1G|E k_ids:11\n"


@pytest.mark.parametrize("form", [OLD, NEW])
@pytest.mark.parametrize(
    ("points", "smsg", "role", "processor"),
    [
        # both neighbors wait for the compute, which runs
        ("CWFW,CRBW,R,R,R", "GGGG", "compute", "TRISC0"),
        # the reader waits for the NoC, the compute for the reader
        ("CWFW,NRBW,CWFW,R,R", "GGGG", "reader", "NCRISC"),
        # the writer waits for the NoC, the compute for room
        ("NWBW,CRBW,R,R,CRBW", "GGGG", "writer", "BRISC"),
        ("CWFW,NSW,CWFW,R,R", "GGGG", "reader", "NCRISC"),  # the reader waits for a semaphore
        ("CWFW,CRBW,CWFW,R,R", "GGGG", "compute and reader", None),  # each waits for the other
        ("CWFW,W,CWFW,R,R", "DGGG", "reader", "NCRISC"),  # the reader has ended too early
        ("CWFW,W,W,W,W", "DDDD", "compute", "TRISC0"),  # the compute has ended too early
    ],
)
def test_the_stuck_kernel_is_named(
    form: str, points: str, smsg: str, role: str, processor: str | None
) -> None:
    finding = read("Legend: BRISC, NCRISC\n" + form.format(x=0, points=points, smsg=smsg) + NAMES)
    assert finding.role == role
    assert role.split()[0] in finding.words
    if processor is not None:
        assert finding.processor == processor
        assert finding.kernel is not None
        assert finding.kernel in finding.words


def test_a_file_s_name_says_more_than_its_place() -> None:
    names = "k_id[  4]: reader_unary.cpp\nk_id[  3]: writer_unary.cpp\n"
    finding = read(NEW.format(x=0, points="NRBW,W,CWFW,R,R", smsg="DGGG") + names)
    assert (finding.role, finding.processor, finding.waypoint) == ("reader", "BRISC", "NRBW")


def test_the_last_look_counts_and_the_majority_of_cores_decides() -> None:
    looks = ["NWBW,CRBW,R,R,CRBW"] * 3 + ["CWFW,CRBW,R,R,R"] * 2 + ["CWFW,NRBW,CWFW,R,R"]
    cores = [NEW.format(x=n % 3, points=points, smsg="GGGG") for n, points in enumerate(looks)]
    finding = read("".join(cores) + NAMES)
    assert (finding.role, finding.cores, finding.core) == ("compute", 2, (0, 2))
    assert "2 of 3 running cores" in finding.words
    assert len(finding.waypoints) == 3


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "shows no core"),
        ("nonsense\n\0\n", "shows no core"),
        (SLEEPING, "no kernel"),
        (IDLE, "shows no core"),
        ("Core (x=1,y=1): ," + " " * 200_000 + "x", "shows no core"),  # of a hostile kernel
    ],
)
def test_a_log_that_shows_nothing_says_so(text: str, words: str) -> None:
    finding = read(text)
    assert finding.role is None
    assert words in finding.words


def test_what_the_watcher_itself_found_is_kept() -> None:
    line = (
        "Device 0, Core (x=1,y=1):    AST1,R,R,R,R  brisc tripped assert on line 7. Running "
        "kernel: my_kernel.cpp."
    )
    assert read(line).trouble == (line,)
