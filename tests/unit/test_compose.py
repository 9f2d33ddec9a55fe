"""docker-compose.yml can't be started here, so what can be read from it is held to its rules."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleet.contracts.names import SearchAttribute
from fleet.durations import parse
from tests.parts.ports import free_port
from worker.listener import Pages, listening
from worker.settings import Settings
from worker.vitals import Health

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
JOBS = {"schema", "namespace"}

_PINNED = re.compile(r"[a-z0-9/.-]+:\d+\.\d+(\.\d+)?(-[a-z0-9.]+)?")


def test_every_image_is_pinned_to_a_release() -> None:
    images = {name: service["image"] for name, service in SERVICES.items()}
    assert {name for name, image in images.items() if not _PINNED.fullmatch(image)} == set()


def test_the_image_of_steady_carries_the_projects_version() -> None:
    assert SERVICES["steady"]["image"] == f"steady:{PROJECT['project']['version']}"


def test_ports_are_published_on_the_loopback_address_only() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert ports
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []


def test_no_password_stands_in_the_file() -> None:
    settings = [
        str(value)
        for service in SERVICES.values()
        for name, value in service.get("environment", {}).items()
        if re.search(r"PASSWORD|PWD", name)
    ]
    assert settings
    assert [value for value in settings if not value.startswith("${")] == []


@pytest.mark.parametrize(
    ("later", "earlier", "condition"),
    [
        ("schema", "postgres", "service_healthy"),
        ("temporal", "schema", "service_completed_successfully"),
        ("namespace", "temporal", "service_healthy"),
        ("ui", "temporal", "service_healthy"),
        ("steady", "namespace", "service_completed_successfully"),
    ],
)
def test_each_service_waits_for_what_it_needs(later: str, earlier: str, condition: str) -> None:
    assert SERVICES[later]["depends_on"] == {earlier: {"condition": condition}}


def test_a_service_that_others_wait_to_be_healthy_says_when_it_is() -> None:
    awaited = {
        name
        for service in SERVICES.values()
        for name, wait in service.get("depends_on", {}).items()
        if wait["condition"] == "service_healthy"
    }
    assert awaited == {"postgres", "temporal"}
    assert all("test" in SERVICES[name]["healthcheck"] for name in awaited)


def test_services_come_back_after_a_reboot_and_jobs_end() -> None:
    restarts = {name: service["restart"] for name, service in SERVICES.items()}
    assert restarts == {
        name: "on-failure:5" if name in JOBS else "unless-stopped" for name in SERVICES
    }


def test_data_lies_in_named_volumes() -> None:
    volumes = {
        entry.split(":")[0]
        for service in SERVICES.values()
        for entry in service.get("volumes", [])
        if isinstance(entry, str)
    }
    assert volumes == set(COMPOSE["volumes"])


def test_the_worker_has_longer_to_stop_than_it_lets_activities_finish() -> None:
    graceful = Settings.model_fields["graceful_shutdown"].default
    assert "STEADY_GRACEFUL_SHUTDOWN" not in SERVICES["steady"]["environment"]
    assert parse(SERVICES["steady"]["stop_grace_period"]) >= graceful + parse("30s")


def test_every_setting_of_the_worker_is_one_that_it_knows() -> None:
    environment = SERVICES["steady"]["environment"]
    given = {name for name in environment if name.startswith("STEADY_")}
    assert given <= {f"STEADY_{name.upper()}" for name in Settings.model_fields}


def test_the_worker_serves_its_health_inside_its_container_only() -> None:
    address = SERVICES["steady"]["environment"]["STEADY_LISTEN"]
    assert address.startswith("127.0.0.1:")
    assert f'"{address}"' in SERVICES["steady"]["healthcheck"]["test"][-1]
    assert "ports" not in SERVICES["steady"]


@pytest.mark.parametrize(
    ("health", "code"), [(Health([], {}), 0), (Health(["no work was done"], {}), 1)]
)
def test_the_check_of_the_worker_fails_while_no_work_flows(health: Health, code: int) -> None:
    with listening("127.0.0.1:0", Pages(lambda: health, lambda _: (b"", ""))) as port:
        assert _checked(port) == code


def test_the_check_of_the_worker_fails_where_nothing_answers() -> None:
    assert _checked(free_port()) != 0


def _checked(port: int) -> int:
    kind, _, *arguments = SERVICES["steady"]["healthcheck"]["test"]
    assert kind == "CMD"
    script = [each.replace(":9464", f":{port}") for each in arguments]
    return subprocess.run([sys.executable, *script], capture_output=True, check=False).returncode


def test_the_worker_runs_without_root_and_writes_only_where_it_keeps_evidence() -> None:
    steady = SERVICES["steady"]
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert re.search(r"^USER steady$", dockerfile, re.MULTILINE)
    assert steady["read_only"] is True
    assert steady["cap_drop"] == ["ALL"]
    assert f"evidence:{steady['environment']['STEADY_STATE_DIR']}" in steady["volumes"]


def test_the_schema_job_prepares_both_databases(tmp_path: Path) -> None:
    tool = tmp_path / "temporal-sql-tool"
    tool.write_text('#!/bin/sh\necho "$@"\n')
    tool.chmod(0o755)
    job = SERVICES["schema"]
    ran = subprocess.run(
        [*job["entrypoint"], job["command"][0].replace("$$", "$")],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    server = "--plugin postgres12 --ep postgres -p 5432 -u temporal --db"
    schemas = "/etc/temporal/schema/postgresql/v12"
    assert ran.stdout.splitlines() == [
        f"{server} {database} {step}"
        for database, part in (("temporal", "temporal"), ("temporal_visibility", "visibility"))
        for step in (
            "create",
            "setup-schema -v 0.0",
            f"update-schema -d {schemas}/{part}/versioned",
        )
    ]
    assert SERVICES["temporal"]["environment"]["VISIBILITY_DBNAME"] == "temporal_visibility"


def test_the_namespace_job_registers_every_search_attribute() -> None:
    script = SERVICES["namespace"]["command"][0]
    assert [name for name in SearchAttribute if f"--name {name} --type Keyword" not in script] == []


def test_the_image_holds_every_package_of_the_project() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    ignored = (ROOT / ".dockerignore").read_text()
    for package in PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]:
        assert f"COPY {package} {package}\n" in dockerfile
        assert f"!{package}\n" in ignored
