"""The table of subcommands: where each is, and its line in the help."""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    """A subcommand: its `module:function`, typer app or `Noun`, help panel and help line."""

    target: str
    panel: str
    line: str


LOCAL, SERVER, NOUNS, RUN, ADMIN = (
    "Local, no server",
    "Talk to a server",
    "What a server has: list, show, create, change, remove",
    "Run the service",
    "Look after it",
)

COMMANDS: dict[str, Entry] = {
    "demo": Entry(
        "gonogo_service.cli.operate.demo:demo",
        RUN,
        "Start everything and show the pass that isn't: two builds, one of them wrong and green.",
    ),
    "up": Entry(
        "gonogo_service.cli.operate.up:up",
        RUN,
        "Run the whole service here: SQLite, a private Redis, API, background, an emulator worker.",
    ),
    "serve": Entry(
        "gonogo_service.cli.operate.processes:serve", RUN, "Run the HTTP service (API and pages)."
    ),
    "background": Entry(
        "gonogo_service.cli.operate.processes:background",
        RUN,
        "Run the dispatcher, the reaper, the assessments and the delivery of messages.",
    ),
    "worker": Entry(
        "gonogo_service.cli.operate.processes:worker",
        RUN,
        "Run a device worker: takes chunks from its queue and runs kernels.",
    ),
    "check": Entry(
        "gonogo_workers.cli.check:check", LOCAL, "Run a test here and judge every seed."
    ),
    "gauge": Entry(
        "gonogo_workers.cli.gauge:gauge",
        LOCAL,
        "Measure a test with right and wrong kernels: its misses, and a better tolerance.",
    ),
    "sweep": Entry(
        "gonogo_workers.cli.sweep:sweep",
        LOCAL,
        "Run a kernel at the shapes and inputs where kernels break, and shrink what fails.",
    ),
    "judge": Entry(
        "gonogo_workers.cli.judge:judge", LOCAL, "Judge stored .npy tensors against a test."
    ),
    "kernels": Entry(
        "gonogo.cli.kernels:app",
        LOCAL,
        "List the kernels that can be tested, and their emulated builds.",
    ),
    "headers": Entry(
        "gonogo_workers.cli.headers:headers",
        LOCAL,
        "Print the folder of gonogo_dump.hpp, for GoogleTest programs that hand over arrays.",
    ),
    "submit": Entry(
        "gonogo_service.cli.submit:submit",
        SERVER,
        "Submit a job, or a suite file as one run; with --watch, wait for its verdict.",
    ),
    "ci": Entry(
        "gonogo_service.cli.pipeline.ci:ci",
        SERVER,
        "Gate a pipeline: register the build, run a suite, compare with the base.",
    ),
    "watch": Entry("gonogo_service.cli.jobs:watch", SERVER, "Follow a job until it ends."),
    "results": Entry(
        "gonogo_service.cli.results:results", SERVER, "Print every seed's numbers of a job."
    ),
    "diagnose": Entry(
        "gonogo_service.cli.jobs:diagnose",
        SERVER,
        "Say what is wrong with a job's kernel: which term, which tiles.",
    ),
    "compare": Entry(
        "gonogo_service.cli.compare:compare",
        SERVER,
        "Compare a build or a run with another, test by test; the exit code is a gate for CI.",
    ),
    "import": Entry(
        "gonogo_service.cli.imports:import_",
        SERVER,
        "Store the report of a run that happened elsewhere: JUnit, gtest, CTRF.",
    ),
    "rejudge": Entry(
        "gonogo_service.cli.rejudge:rejudge",
        SERVER,
        "Judge a test's stored seeds again, under another tolerance.",
    ),
    "bisect": Entry(
        "gonogo_service.cli.bisect:bisect",
        SERVER,
        "Find the build of a series that changed a test, although its runs are noisy.",
    ),
    "suites": Entry(
        "gonogo_service.cli.nouns.suites:app",
        NOUNS,
        "Store suites of tests, look at them, and run them.",
    ),
    "runs": Entry(
        "gonogo_service.cli.nouns.runs:app",
        NOUNS,
        "Look at runs of suites, and cancel them.",
    ),
    "jobs": Entry(
        "gonogo_service.cli.nouns.jobs:JOBS",
        NOUNS,
        "Look at jobs, cancel and delete them.",
    ),
    "gauges": Entry(
        "gonogo_service.gauges.noun:GAUGES",
        NOUNS,
        "Look at the gauges of tests on the server.",
    ),
    "bisections": Entry(
        "gonogo_service.bisections.noun:BISECTIONS",
        NOUNS,
        "Look at bisections; `gonogo bisect` starts one.",
    ),
    "builds": Entry(
        "gonogo_service.builds.noun:BUILDS",
        NOUNS,
        "Register builds, look at them, and remove those without jobs.",
    ),
    "schedules": Entry(
        "gonogo_service.schedules.noun:SCHEDULES",
        NOUNS,
        "Run suites at the times of a cron line.",
    ),
    "flags": Entry(
        "gonogo_service.cli.nouns.flags:app",
        NOUNS,
        "Look at flags, acknowledge and resolve them.",
    ),
    "waivers": Entry(
        "gonogo_service.cli.nouns.waivers:app",
        NOUNS,
        "Accept findings until a date, so that they block no commit.",
    ),
    "devices": Entry(
        "gonogo_service.devices.noun:DEVICES",
        NOUNS,
        "Look at the devices of all hosts; take one out of service.",
    ),
    "hosts": Entry(
        "gonogo_service.cli.nouns.hosts:app",
        NOUNS,
        "Add, join and revoke the machines that have devices.",
    ),
    "webhooks": Entry(
        "gonogo_service.cli.nouns.webhooks:app",
        NOUNS,
        "Send messages about jobs, runs and flags to other programs.",
    ),
    "rules": Entry(
        "gonogo_service.cli.nouns.rules:app",
        NOUNS,
        "Say which deliveries of GitHub and other CI start which suites.",
    ),
    "hooks": Entry(
        "gonogo_service.ci.noun:HOOKS",
        NOUNS,
        "Look at deliveries of GitHub and other CI.",
    ),
    "tokens": Entry(
        "gonogo_service.cli.nouns.tokens:app",
        NOUNS,
        "Make bearer tokens, list, rotate and revoke them.",
    ),
    "audit": Entry(
        "gonogo_service.cli.audit:app",
        ADMIN,
        "See who did what; export the audit.",
    ),
    "doctor": Entry(
        "gonogo_service.cli.operate.doctor:doctor",
        ADMIN,
        "Look at this machine and its settings, and say what is missing.",
    ),
    "chips": Entry(
        "gonogo_service.cli.operate.chips:app",
        ADMIN,
        "List this host's chips; run a program while no worker uses one.",
    ),
    "db": Entry(
        "gonogo_service.cli.operate.db:app",
        ADMIN,
        "Migrate, back up, restore and prune the database.",
    ),
    "secrets": Entry(
        "gonogo_service.cli.operate.secrets:secrets",
        ADMIN,
        "Make the secrets that docker-compose.yml needs, in files for their owner only.",
    ),
}
