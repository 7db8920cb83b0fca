"""The documents say what the code does: settings, commands, compose files."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic._internal._docs_extraction import extract_docstrings_from_cls

import gonogo.settings
from gonogo.cli.app import COMMANDS, load
from gonogo.flakiness.grades import Sharpness, Stability
from gonogo.spec.builds import own_builds
from gonogo.spec.executors import EXECUTORS
from gonogo.spec.verdicts import Explanation, Verdict
from gonogo_dashboards.kit import glossary
from gonogo_service.cli.operate import secrets
from gonogo_service.cli.operate.doctor import CHECKS
from tests.checks import errors, flags, reference, routes, statistics

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
SETTINGS = extract_docstrings_from_cls(gonogo.settings.Settings, use_inspect=True)
"""Setting -> what it is."""


def default_of(name: str) -> str:
    """A setting's default as the table shows it."""
    value = gonogo.settings.Settings.model_fields[name].default
    if value is None or value in ("", ()):
        return ""
    text = ",".join(value) if isinstance(value, tuple) else str(value)
    return f"`{text.lower() if isinstance(value, bool) else text}`"


def settings_table() -> str:
    """The table that docs/settings.md must hold."""
    rows = ["| variable | default | meaning |", "|---|---|---|"]
    for name, text in SETTINGS.items():
        variable = f"{gonogo.settings.PREFIX}{name.upper()}"
        rows.append(f"| `{variable}` | {default_of(name)} | {' '.join(text.split())} |")
    return "\n".join(rows)


def outside_table() -> str:
    """The table of the variables of tests and builds."""
    rows = [f"| `{name}` | {text} |" for name, text in gonogo.settings.OUTSIDE_VARIABLES.items()]
    return "\n".join(["| variable | meaning |", "|---|---|", *rows])


def executors_table() -> str:
    """The table of the built-in executors."""
    columns = ("executor", "runs", "its interpreter needs", "seconds per seed", "builds")
    rows = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    for row in EXECUTORS.values():
        guess = f"{row.seed_s:g}" + (f" + {row.element_s:g} per element" if row.element_s else "")
        builds = list(own_builds(row.name))
        known = f"its own, such as `{builds[0]}`" if builds else "the host's"
        package = f"`{row.package}`" if row.package else ""
        rows.append(f"| `{row.name}` | {row.sentence} | {package} | {guess} | {known} |")
    return "\n".join(rows)


def doctor_table() -> str:
    """The table of the checks of `gonogo doctor`."""
    rows = ["| part | what it looks at | remedy |", "|---|---|---|"]
    for part, (run, remedy) in CHECKS.items():
        rows.append(f"| `{part}` | {(run.__doc__ or '').rstrip('.')} | {remedy} |")
    return "\n".join(rows)


@pytest.mark.parametrize(
    ("page", "mark", "table"),
    [
        ("operations.md", "doctor", doctor_table()),
        ("settings.md", "settings", settings_table()),
        ("settings.md", "outside", outside_table()),
        ("executors.md", "executors", executors_table()),
    ],
)
def test_a_table_is_the_code_s(page: str, mark: str, table: str) -> None:
    section = re.search(
        rf"<!-- {mark} -->\n(.*?)\n?<!-- /{mark} -->", (DOCS / page).read_text(), re.DOTALL
    )
    assert section is not None
    assert SETTINGS.keys() == gonogo.settings.Settings.model_fields.keys()
    assert section[1] == table, f"docs/{page}, between the marks <!-- {mark} -->, must be:\n{table}"


UNITS = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "examples/systemd").iterdir())


def test_systemd_takes_the_units_as_they_are(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd: not installed (apt-get install systemd)")
    names = []
    for unit in UNITS:
        text = (ROOT / unit).read_text()
        names.append(Path(unit).name.replace("@", "@1"))
        (tmp_path / Path(unit).name).write_text(text.replace("/opt/gonogo/bin/gonogo", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", *names],
        env={**os.environ, "SYSTEMD_UNIT_PATH": f"{tmp_path}:"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    docs = "".join((DOCS / name).read_text() for name in ("reliability.md", "devices.md"))
    commands = [line for unit in UNITS for line in (ROOT / unit).read_text().splitlines()]
    assert all(Path(unit).name in docs for unit in UNITS)
    assert sum(line.startswith("ExecStart=/opt/gonogo/bin/gonogo ") for line in commands) == 4


def test_each_alert_has_a_page_of_the_runbook() -> None:
    text = (DOCS / "reliability.md").read_text()
    rules = yaml.safe_load((ROOT / "dashboards/grafana/prometheus/alerts.yml").read_text())
    alerts = [rule["alert"] for group in rules["groups"] for rule in group["rules"]]
    assert re.findall(r"^### (Gonogo\w+)$", text, re.M) == alerts


COMPOSE = ["docker-compose.yml", "docker-compose.wormhole.yml"]
OVERLAY = "docker-compose.hosts.yml"
DOCUMENTS = ["README.md", *sorted(str(path.relative_to(ROOT)) for path in DOCS.glob("*.md"))]


def test_no_document_names_a_variable_that_nobody_reads() -> None:
    for path in (*DOCUMENTS, *COMPOSE, OVERLAY, "Dockerfile", *UNITS, ".ci/run", "Makefile"):
        names = re.findall(r"\bGONOGO_[A-Z_]*[A-Z]", (ROOT / path).read_text())
        assert set(names) <= gonogo.settings.known_variables(), path


def compose(name: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((ROOT / name).read_text())
    return content


OTHERS = {"postgres", "redis", "proxy", "prometheus", "grafana"}


@pytest.mark.parametrize("name", COMPOSE)
def test_every_service_s_command_is_a_real_gonogo_command(name: str) -> None:
    gonogo_services = {
        key: service for key, service in compose(name)["services"].items() if key not in OTHERS
    }
    assert gonogo_services
    for service in gonogo_services.values():
        first, *rest = service["command"]
        assert first in COMMANDS
        command = load(first)
        if rest and not rest[0].startswith("-"):
            command = command.commands[rest.pop(0)]
        # click reads the options as the container would, without running the command
        assert command.make_context(first, list(rest), resilient_parsing=False) is not None


def test_production_compose_keeps_its_promises() -> None:
    services = compose("docker-compose.yml")["services"]
    always = {"postgres", "redis", "migrate", "api", "proxy", "background", "worker"}
    assert {name for name, service in services.items() if "profiles" not in service} == always
    assert "noeviction" in services["redis"]["command"]
    assert "--aclfile" in services["redis"]["command"]
    assert "--proto-max-bulk-len" in services["redis"]["command"]
    assert services["migrate"]["restart"] == "no"
    assert [name for name, service in services.items() if "ports" in service] == [
        *("proxy", "prometheus", "grafana"),
    ]
    proxy = services["proxy"]["networks"]["default"]["ipv4_address"]
    assert services["api"]["environment"]["GONOGO_PROXIES"] == proxy
    for name in ("api", "background"):
        assert services[name]["depends_on"]["migrate"] == {
            "condition": "service_completed_successfully"
        }
        assert services[name]["healthcheck"]["test"]
    images = [service["image"] for service in services.values() if service["image"] != "gonogo"]
    assert [image for image in images if not re.search(r":v?\d+\.\d+", image)] == []


def test_device_hosts_elsewhere_reach_the_broker_by_tls_only() -> None:
    """An overlay's command replaces the first file's, so it must repeat its words."""
    overlay, base = compose(OVERLAY)["services"], compose("docker-compose.yml")["services"]
    assert set(overlay) == {"redis"}
    plain, command = base["redis"]["command"], overlay["redis"]["command"]
    assert command[: len(plain)] == plain
    more = dict(zip(command[len(plain) :: 2], command[len(plain) + 1 :: 2], strict=True))
    assert [port.rpartition(":")[2] for port in overlay["redis"]["ports"]] == [more["--tls-port"]]
    assert "ports" not in base["redis"]
    mounted = [volume.split(":") for volume in overlay["redis"]["volumes"]]
    files = {more["--tls-cert-file"], more["--tls-key-file"]}
    assert {inside for _, inside, _ in mounted} == files
    page = (DOCS / "operations.md").read_text()
    authority = re.findall(r"rediss://\S+:(\d+)/0\?ssl_ca_certs=(\S+)/ca\.crt", page)
    assert authority == [(more["--tls-port"], "/etc/gonogo/tls")]
    host = compose("docker-compose.wormhole.yml")["services"]["worker"]["volumes"]
    assert "/etc/gonogo/tls:/etc/gonogo/tls:ro" in host
    assert "/tls/" in (ROOT / ".gitignore").read_text().splitlines()


def test_every_setting_reaches_the_containers_that_need_it() -> None:
    """A file of settings does; a list of them in the compose file forgets the next one."""
    services = compose("docker-compose.yml")["services"]
    for name in ("migrate", "api", "background"):
        assert services[name]["env_file"] == [secrets.SERVER]
    for file in COMPOSE:
        worker = compose(file)["services"]["worker"]
        assert worker["env_file"] == [secrets.WORKER]
        forbidden = {"GONOGO_DATABASE_URL", "GONOGO_SECRET_KEY"}
        assert forbidden.isdisjoint(worker.get("environment") or {})
    for service in services.values():  # no secret is written here, or has a default
        for variable, value in (service.get("environment") or {}).items():
            if variable.endswith(("_KEY", "_PASSWORD")):
                assert re.fullmatch(r"\$\{[A-Z_]+:\?.+\}", value), f"{variable}={value}"


def test_a_host_with_boards_needs_no_secret_of_the_server() -> None:
    text = (ROOT / "docker-compose.wormhole.yml").read_text()
    for variable in ("POSTGRES_PASSWORD", "GONOGO_SECRET_KEY"):
        assert variable not in text


def test_compose_runs_kernels_as_a_second_user() -> None:
    accounts = re.findall(
        r"useradd --uid (\d+)\b.*? (\S+)(?: \\)?$", (ROOT / "Dockerfile").read_text(), re.M
    )
    users = {name: uid for uid, name in accounts}
    for file in COMPOSE:
        worker = compose(file)["services"]["worker"]
        kernel = worker["environment"]["GONOGO_CHILD_USER"].partition(":")[0]
        assert kernel in users
        assert users[kernel] in worker["group_add"]
        assert worker["cap_drop"] == ["ALL"]
        assert {"KILL", "SETGID", "SETUID"} <= {*worker["cap_add"]}
        assert worker["user"] == "0:0"


def test_the_pins_name_every_service_of_an_image() -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    images = {service["image"] for service in compose("docker-compose.yml")["services"].values()}
    lines = [f'{image} "{image.partition(":")[0]}@sha256:00"' for image in images - {"gonogo"}]
    spec = importlib.util.spec_from_file_location("pin", ROOT / "locks" / "pin.py")
    assert spec is not None
    assert spec.loader is not None
    pin = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pin)
    pinned = yaml.safe_load(pin.overlay(lines, text))["services"]
    assert set(pinned) == OTHERS
    assert all("@sha256:" in service["image"] for service in pinned.values())


def test_the_image_runs_as_nobody_in_particular() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    start = max(number for number, line in enumerate(lines) if line.startswith("FROM"))
    last_stage = lines[start:]
    users = [line.split()[1] for line in last_stage if line.startswith("USER")]
    assert users == ["gonogo"]
    entry = next(line for line in last_stage if line.startswith("ENTRYPOINT"))
    script = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert entry == f'ENTRYPOINT ["{next(iter(script))}"]'


def test_the_image_copies_only_what_is_let_through() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    let_through = {line[1:] for line in lines if line.startswith("!")}
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    packages = build["targets"]["wheel"]["packages"]
    folders = {package.partition("/")[0] for package in packages}
    others = {"locks", "tests/checks", "pyproject.toml", "hatch_build.py", "README.md", "LICENSE"}
    assert folders | others == let_through


@pytest.mark.parametrize("path", sorted(ROOT.glob("locks/*.txt")), ids=lambda path: path.name)
def test_locks_have_hashes_and_no_address(path: Path) -> None:
    text = path.read_text()
    assert "://" not in text
    assert not re.search(r"^\s*-", text.replace("    --hash=", ""), re.MULTILINE)
    requirements = [line for line in text.splitlines() if re.match(r"[A-Za-z0-9]", line)]
    assert requirements
    assert all(re.match(r"[A-Za-z0-9._-]+==[^ ]+ (; .+ )?\\$", line) for line in requirements)


@pytest.mark.parametrize("tag", ["py311", "py312", "py313", "py314"])
def test_the_dev_lock_holds_the_run_lock(tag: str) -> None:
    texts = [(ROOT / f"locks/{name}-{tag}.txt").read_text() for name in ("run", "dev")]
    run, dev = (set(re.findall(r"^([\w.-]+==[^ ]+)", text, re.MULTILINE)) for text in texts)
    assert run <= dev


def test_commands_and_links_in_the_documents_exist() -> None:
    for path in (ROOT / name for name in DOCUMENTS):
        text = path.read_text()
        for name in re.findall(r"`gonogo ([a-z]+)", text):
            assert name in COMMANDS, f"{path.name}: gonogo {name}"
        for target in re.findall(r"\]\(([^)#:]+)\)", text):
            assert (path.parent / target).exists(), f"{path.name} -> {target}"


@pytest.mark.parametrize("writer", [reference, routes, statistics, errors, flags])
def test_a_page_that_is_made_from_the_program_is_that_of_today(writer: Any) -> None:
    assert writer.PAGE.read_text() == writer.page(), f"run `python -m {writer.__name__}`"


def test_the_install_page_names_every_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    rows = re.findall(r"^\| `gonogo\[(\w+)\]` \|", (DOCS / "install.md").read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(project["optional-dependencies"])


def test_every_page_is_in_the_index() -> None:
    index = (DOCS / "index.md").read_text()
    listed = {line for line in index.splitlines() if (DOCS / f"{line}.md").is_file()}
    assert listed == {path.stem for path in DOCS.glob("*.md")} - {"index"}


ENTRY = re.compile(r"  - \*\*[^*]+\*\*(?: \(`(?P<value>[a-z_]+)`\))?: (?P<text>.+)")


def test_every_verdict_and_grade_is_defined_and_pages_show_the_glossary_s_sentences() -> None:
    lines = (DOCS / "glossary.md").read_text().splitlines()
    entries = [match for line in lines if (match := ENTRY.fullmatch(line))]
    definitions = {entry["value"]: entry["text"] for entry in entries}
    kinds = (Verdict, Explanation, Stability, Sharpness)
    assert {str(word) for kind in kinds for word in kind} - {"unknown"} <= definitions.keys()
    assert glossary.term("Last canary") == definitions["canary"]
    assert glossary.term("Branch and board") == definitions["variant"]
    assert glossary.term("Job") == ""


def texts() -> Iterator[tuple[Path, str]]:
    """The text constants of all modules, without docstrings."""
    for package in ("gonogo", "service", "workers", "dashboards"):
        for path in (ROOT / package).rglob("gonogo_*/**/*.py" if package != "gonogo" else "*.py"):
            nodes = list(ast.walk(ast.parse(path.read_text())))
            docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
            for node in nodes:
                if isinstance(node, ast.Constant) and id(node) not in docstrings:
                    yield path, str(node.value)


def test_messages_name_pages_of_the_manual_and_no_files_of_a_checkout() -> None:
    hints = set()
    for path, text in texts():
        assert not re.search(r"docs/[\w-]+\.md", text), (path, text)
        hints |= set(re.findall(r"manual: ([\w-]+)", text))
    assert len(hints) > 5
    assert hints <= {path.stem for path in DOCS.glob("*.md")}


@pytest.mark.parametrize("page", ["SECURITY.md", "docs/reliability.md"])
def test_each_promise_names_a_test_that_there_is(page: str) -> None:
    files = {path.name: path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}
    tests = set(re.findall(r"^def (test_\w+)", "\n".join(files.values()), re.M))
    named = re.findall(r"(?:`|::)(test_\w+)(\.py)?`", (ROOT / page).read_text())
    assert len(named) > 15
    assert {name for name, is_file in named if not is_file} <= tests
    assert {f"{name}.py" for name, is_file in named if is_file} <= files.keys()
