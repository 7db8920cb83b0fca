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

# fmt: off
_BY_PANEL = {
    RUN: {
        "demo": ("gonogo_service.cli.operate.demo:demo",
            "Start everything and show the pass that isn't: two builds, one wrong and green."),
        "up": ("gonogo_service.cli.operate.up:up",
            "Run the whole service here: SQLite, a private Redis, API, background, a worker."),
        "serve": ("gonogo_service.cli.operate.processes:serve",
            "Run the HTTP service (API and pages)."),
        "background": ("gonogo_service.cli.operate.processes:background",
            "Run the dispatcher, the reaper, the assessments and the delivery of messages."),
        "worker": ("gonogo_service.cli.operate.processes:worker",
            "Run a device worker: takes chunks from its queue and runs kernels."),
    },
    LOCAL: {
        "check": ("gonogo_workers.cli.check:check", "Run a test here and judge every seed."),
        "gauge": ("gonogo_workers.cli.gauge:gauge",
            "Measure a test with right and wrong kernels: its misses, and a better tolerance."),
        "sweep": ("gonogo_workers.cli.sweep:sweep",
            "Run a kernel at the shapes and inputs where kernels break, and shrink what fails."),
        "judge": ("gonogo_workers.cli.judge:judge", "Judge stored .npy tensors against a test."),
        "kernels": ("gonogo.cli.kernels:app",
            "List the kernels that can be tested, and their emulated builds."),
        "headers": ("gonogo_workers.cli.headers:headers",
            "Print the folder of gonogo_dump.hpp, for GoogleTest programs that hand over arrays."),
    },
    SERVER: {
        "submit": ("gonogo_service.cli.submit:submit",
            "Submit a job, or a suite file as one run; with --watch, wait for its verdict."),
        "ci": ("gonogo_service.cli.pipeline.ci:ci",
            "Gate a pipeline: register the build, run a suite, compare with the base."),
        "watch": ("gonogo_service.cli.jobs:watch", "Follow a job until it ends."),
        "results": ("gonogo_service.cli.results:results", "Print every seed's numbers of a job."),
        "diagnose": ("gonogo_service.cli.jobs:diagnose",
            "Say what is wrong with a job's kernel: which term, which tiles."),
        "compare": ("gonogo_service.cli.compare:compare",
            "Compare a build or a run with another, test by test; the exit code is a gate for CI."),
        "import": ("gonogo_service.cli.imports:import_",
            "Store the report of a run that happened elsewhere: JUnit, gtest, CTRF."),
        "rejudge": ("gonogo_service.cli.rejudge:rejudge",
            "Judge a test's stored seeds again, under another tolerance."),
        "bisect": ("gonogo_service.cli.bisect:bisect",
            "Find the build of a series that changed a test, although its runs are noisy."),
    },
    NOUNS: {
        "suites": ("gonogo_service.cli.nouns.suites:app",
            "Store suites of tests, look at them, and run them."),
        "runs": ("gonogo_service.cli.nouns.runs:app", "Look at runs of suites, and cancel them."),
        "jobs": ("gonogo_service.jobs.noun:JOBS", "Look at jobs, cancel and delete them."),
        "gauges": ("gonogo_service.gauges.noun:GAUGES",
            "Look at the gauges of tests on the server."),
        "bisections": ("gonogo_service.bisections.noun:BISECTIONS",
            "Look at bisections; `gonogo bisect` starts one."),
        "builds": ("gonogo_service.builds.noun:BUILDS",
            "Register builds, look at them, and remove those without jobs."),
        "schedules": ("gonogo_service.schedules.noun:SCHEDULES",
            "Run suites at the times of a cron line."),
        "flags": ("gonogo_service.cli.nouns.flags:app",
            "Look at flags, acknowledge and resolve them."),
        "waivers": ("gonogo_service.cli.nouns.waivers:app",
            "Accept findings until a date, so that they block no commit."),
        "devices": ("gonogo_service.devices.noun:DEVICES",
            "Look at the devices of all hosts; take one out of service."),
        "hosts": ("gonogo_service.cli.nouns.hosts:app",
            "Add, join and revoke the machines that have devices."),
        "webhooks": ("gonogo_service.cli.nouns.webhooks:app",
            "Send messages about jobs, runs and flags to other programs."),
        "rules": ("gonogo_service.cli.nouns.rules:app",
            "Say which deliveries of GitHub and other CI start which suites."),
        "hooks": ("gonogo_service.ci.noun:HOOKS", "Look at deliveries of GitHub and other CI."),
        "tokens": ("gonogo_service.cli.nouns.tokens:app",
            "Make bearer tokens, list, rotate and revoke them."),
    },
    ADMIN: {
        "audit": ("gonogo_service.cli.audit:app", "See who did what; export the audit."),
        "doctor": ("gonogo_service.cli.operate.doctor:doctor",
            "Look at this machine and its settings, and say what is missing."),
        "chips": ("gonogo_service.cli.operate.chips:app",
            "List this host's chips; run a program while no worker uses one."),
        "db": ("gonogo_service.cli.operate.db:app",
            "Migrate, back up, restore and prune the database."),
        "secrets": ("gonogo_service.cli.operate.secrets:secrets",
            "Make the secrets that docker-compose.yml needs, in files for their owner only."),
    },
}
# fmt: on
COMMANDS = {
    name: Entry(target, panel, line)
    for panel, commands in _BY_PANEL.items()
    for name, (target, line) in commands.items()
}
