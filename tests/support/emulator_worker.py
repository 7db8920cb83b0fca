"""A device worker in the test's own process: it runs what waits on the emulator, each chunk as a
child process would.

The message, the kernel, the judgement, the rows and what ingest does with them are the real ones;
only the processes and the broker between them are left out, which takes seconds a chunk.
"""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from typing import Any

from pydantic import SecretStr

import unchecked
from gonogo import emulator
from gonogo.judging.inputs import generate, quantise
from gonogo.judging.judging import judge
from gonogo.spec.test_spec import TestSpec
from gonogo_service.background.assess import Assessor
from gonogo_service.jobs import chunks, dispatching
from gonogo_service.kit.background_context import BackgroundContext, open_background_context
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.ids import new_id
from gonogo_service.people.context import Context
from gonogo_workers.messages import rows
from gonogo_workers.messages.chunk import Chunk
from handed_out import hand_out

QUEUE = "emulator.wormhole.n150"
DEVICE = "lab-1/emulator:0"


def core_of(context: Context) -> BackgroundContext:
    """Return the background's context on an app's database; nothing asks the broker."""
    settings = context.settings.model_copy(
        update={"broker_url": "redis://127.0.0.1:1/0", "secret_key": SecretStr("k" * 40)}
    )
    return replace(open_background_context(settings, threading.Event()), engine=context.engine)


def work_off(core: BackgroundContext) -> int:
    """Run every chunk that waits, and assess every job that is over; how many chunks."""
    done = 0
    while chosen := core.reading(lambda session: chunks.choose(session, QUEUE, 50)):
        core.session(lambda session, ids=chosen: dispatching.dispatch(session, ids, now=utcnow()))
        for item in core.session(lambda session: hand_out(session, now=utcnow())):
            body, limit = json.loads(json.dumps(item.message)), core.settings.max_elements
            _run(core, Chunk.parse(body, max_elements=limit, seed_deadline_s=60.0))
            done += 1
    while Assessor(core).run_once():
        pass
    return done


def _run(core: BackgroundContext, chunk: Chunk) -> None:
    """One chunk in one "child": the context's tests first, then the seeds. The emulator's register
    is clear at position 0."""
    assert isinstance(chunk.test, TestSpec)
    core.session(
        lambda session: unchecked.started(
            session, chunk.attempt, {"device": DEVICE, "worker": "w", "host": "lab-1"}, now=utcnow()
        )
    )
    host_run, position, results = new_id(), 0, []
    for test in chunk.before:
        _kernel(test, chunk, chunk.work[0][0], position)
        position += 1
    for seed, repeat in chunk.work:
        raw, given, outputs = _kernel(chunk.test, chunk, seed, position)
        judgement = judge(chunk.test, raw, given, outputs, arithmetic="tt-train")
        place = rows.Place(DEVICE, host_run, position)
        results.append(rows.judged((seed, repeat), place, 1.0, judgement))
        position += 1
    sent = {"outcome": "done", "sent": [list(pair) for pair in chunk.work], "batches": 1}
    core.session(
        lambda session: unchecked.store(
            session, chunk.attempt, {"rows": results, "batch": 0}, now=utcnow()
        )
    )
    core.session(lambda session: unchecked.finished(session, chunk.attempt, sent, now=utcnow()))


def _kernel(test: TestSpec, chunk: Chunk, seed: int, position: int) -> tuple[Any, Any, Any]:
    raw = generate(test, seed)
    given = quantise(test, raw)
    return raw, given, emulator.run(test, given, chunk.build, position=position)
