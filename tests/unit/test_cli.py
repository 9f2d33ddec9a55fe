"""The command line where no Temporal is needed: help, versions, files, and failures in one line."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import BaseModel
from typer.testing import CliRunner, Result

from fleet import verdicts
from fleet.contracts.drill import DrillStatus, Expected
from fleet.contracts.remediation import Moment, RemediationStatus
from tests.parts.fleet_files import GOOD, write_fleet
from tests.parts.ports import free_port
from worker.cli import app
from worker.commands.exits import MEANING, Exit
from worker.commands.status import KEYS
from worker.snapshot import ServerView

COMMANDS = (
    *("up", "worker", "demo", "validate", "apply", "status", "incidents", "cancel", "snooze"),
    *("approve", "restart", "pause", "resume", "audit", "ssh-scan", "init", "drill", "storm"),
    *("replay", "check", "gateway"),
)
#: What runs until it is told to stop, or is a group of commands.
WITHOUT_JSON = ("up", "worker", "gateway")


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No Temporal, and no ``steady up`` of another folder."""
    monkeypatch.setenv("TEMPORAL_ADDRESS", f"127.0.0.1:{free_port()}")
    monkeypatch.setenv("STEADY_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("TERM", "dumb")


def steady(*arguments: object, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, [str(each) for each in arguments], input=stdin)


class TestHelp:
    def test_lists_every_command_and_every_exit_code(self) -> None:
        shown = steady("--help").stdout
        for command in COMMANDS:
            assert f" {command} " in shown
        for code in Exit:
            assert f"{int(code)}  {MEANING[code][:40]}" in shown

    def test_says_where_to_begin(self) -> None:
        said = " ".join(steady("--help").stdout.split())
        assert "Begin with steady demo" in said
        assert "TEMPORAL_ADDRESS" in said

    @pytest.mark.parametrize("command", COMMANDS)
    def test_of_each_command_says_more_than_its_name(self, command: str) -> None:
        shown = steady(command, "--help")
        assert shown.exit_code == Exit.DONE
        assert len(shown.stdout.split()) > 25

    @pytest.mark.parametrize("command", [each for each in COMMANDS if each not in WITHOUT_JSON])
    def test_of_each_command_with_json_documents_its_keys(self, command: str) -> None:
        shown = steady(command, "--help").stdout
        assert ("--json" in shown) is True
        assert "JSON: " in shown

    @pytest.mark.parametrize(
        ("command", "models"),
        [
            ("status", [ServerView]),
            ("incidents", [RemediationStatus, Moment]),
            ("drill", [DrillStatus, Expected, Moment]),
        ],
    )
    def test_names_every_key_of_an_answer(
        self, command: str, models: list[type[BaseModel]]
    ) -> None:
        said = set(re.findall(r"\w+", steady(command, "--help").stdout.partition("JSON:")[2]))
        assert {key for model in models for key in model.model_fields} <= said
        assert command != "status" or set(KEYS) <= said

    def test_is_shown_where_nothing_is_asked(self) -> None:
        assert "Usage: steady" in steady().output

    def test_loads_nothing_heavy(self) -> None:
        """Half a second for each `--help` would be the price."""
        heavy = ("temporalio", "pydantic", "asyncssh", "httpx", "redis")
        found = subprocess.run(
            [sys.executable, "-c", "import sys, worker.cli; print(*sys.modules)"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        assert set(found).isdisjoint(heavy)

    def test_the_version_is_printed(self) -> None:
        assert steady("--version").stdout.startswith("steady 0.")

    def test_every_exit_code_has_a_meaning(self) -> None:
        assert set(MEANING) == set(Exit)


class TestWrongUsage:
    @pytest.mark.parametrize(
        "arguments",
        [
            ("vallidate",),
            ("validate",),
            ("pause", "gpu-1"),
            ("snooze", "gpu-1"),
            ("ssh-scan", "host", "--port", "99999"),
            ("incidents", "--limit", "0"),
        ],
    )
    def test_is_exit_code_2(self, arguments: tuple[str, ...]) -> None:
        assert steady(*arguments).exit_code == Exit.WRONG_INPUT

    @pytest.mark.parametrize("command", ["pause", "snooze"])
    def test_a_duration_that_is_none_is_one_line(self, command: str) -> None:
        ended = steady(command, "gpu-1", "--for", "2 hours")
        assert ended.exit_code == Exit.WRONG_INPUT
        assert ended.stderr == (
            "--for: '2 hours' is no duration: write a number and a unit (ms, s, m, h, d) in quotes,"
            ' like "120s" or "3m"\n'
        )

    def test_a_setting_that_is_none_names_its_variable(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("STEADY_LOG_LEVEL", "loud")
        ended = steady("worker")
        assert ended.exit_code == Exit.WRONG_INPUT
        assert ended.stderr.startswith("STEADY_LOG_LEVEL: ")
        assert ended.stderr.count("\n") == 1

    @pytest.mark.parametrize("command", ["up", "worker"])
    def test_a_state_folder_that_can_be_none_is_one_line(
        self, command: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("STEADY_STATE_DIR", "/dev/null")
        ended = steady(command)
        assert ended.exit_code == Exit.WRONG_INPUT
        assert ended.stderr == (
            "the state folder /dev/null can't be used (it is no folder):"
            " set STEADY_STATE_DIR to one that can be written\n"
        )


class TestTemporalIsNotThere:
    @pytest.mark.parametrize(
        "arguments",
        [
            ("status",),
            ("incidents",),
            ("incidents", "--since", "7d"),
            ("incident", "show", "gpu-1"),
            ("cancel", "gpu-1"),
            ("approve", "gpu-1"),
            ("restart", "gpu-1"),
            ("resume", "gpu-1"),
            ("snooze", "gpu-1", "--for", "30m"),
            ("pause", "--for", "2h"),
        ],
    )
    def test_is_one_line_with_the_address_and_the_remedy(
        self, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("worker.connection._TRY_EVERY", 60)
        ended = steady(*arguments)
        assert ended.exit_code == Exit.UNREACHED
        assert ended.stdout == ""
        assert ended.stderr.startswith("no Temporal server answered at 127.0.0.1:")
        assert "`steady up`" in ended.stderr
        assert "TEMPORAL_ADDRESS" in ended.stderr
        assert ended.stderr.count("\n") == 1

    def test_the_reason_is_in_words_of_people(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("worker.connection._TRY_EVERY", 60)
        monkeypatch.setenv("TEMPORAL_ADDRESS", "temporal.invalid:7233")
        said = steady("status").stderr
        assert "::" not in said
        assert said.startswith("no Temporal server answered at temporal.invalid:7233 within 5s")

    @pytest.mark.parametrize(
        "address", ["127.0.0.1:99999", "a b:1", "nonsense", "http://x:7233", "::1:7233"]
    )
    def test_an_address_that_is_none_names_its_variable(
        self, address: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TEMPORAL_ADDRESS", address)
        ended = steady("status")
        assert ended.exit_code == Exit.WRONG_INPUT
        assert ended.stderr == (
            f"TEMPORAL_ADDRESS: {address!r} is no HOST:PORT, like 127.0.0.1:7233\n"
        )

    def test_a_fleet_file_with_mistakes_is_told_before_anything_is_asked_for(
        self, tmp_path: Path
    ) -> None:
        ended = steady("apply", write_fleet(tmp_path, "a = 1\n"))
        assert ended.exit_code == Exit.WRONG_INPUT
        assert "a: unknown key" in ended.stderr

    @pytest.mark.parametrize("command", ["up", "apply"])
    def test_nothing_is_started_for_a_fleet_file_with_mistakes(
        self, command: str, tmp_path: Path
    ) -> None:
        ended = steady(command, write_fleet(tmp_path, "a = 1\n"))
        assert ended.exit_code == Exit.WRONG_INPUT
        assert not (tmp_path / "state").exists()


def test_a_fault_of_steady_itself_is_one_line_and_a_code_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("two\nlines")

    monkeypatch.setattr("worker.loading.examine", broken)
    ended = steady("validate", write_fleet(tmp_path))
    assert ended.exit_code == Exit.BUG
    assert ended.stderr == (
        "a fault in steady: ZeroDivisionError: two lines (STEADY_TRACEBACK=1 shows where)\n"
    )


class TestValidate:
    def test_a_good_file_is_said_to_be_good_with_what_is_in_it(self, tmp_path: Path) -> None:
        file = write_fleet(tmp_path)
        ended = steady("validate", file)
        assert ended.exit_code == Exit.DONE
        assert ended.stdout == f"{file} is good: 1 server, 1 host\n"
        assert ended.stderr.startswith(f"warning: {file}: alerts.webhook: is not set")

    def test_each_mistake_is_a_line_and_the_code_is_2(self, tmp_path: Path) -> None:
        ended = steady("validate", write_fleet(tmp_path, GOOD + "[defaults]\na = 1\nb = 2\n"))
        assert ended.exit_code == Exit.WRONG_INPUT
        assert ended.stdout == ""
        assert ended.stderr.count("\n") == 2

    def test_for_programs(self, tmp_path: Path) -> None:
        file = write_fleet(tmp_path, GOOD + "[defaults]\nmodes = 1\n")
        ended = steady("validate", "--json", file)
        assert ended.exit_code == Exit.WRONG_INPUT
        assert json.loads(ended.stdout) == {
            "ok": False,
            "servers": None,
            "hosts": None,
            "stores": None,
            "problems": [
                {
                    "file": str(file),
                    "line": None,
                    "key": "defaults.modes",
                    "message": "unknown key",
                    "remedy": 'did you mean "mode"?',
                }
            ],
            "warnings": [],
        }
        good = json.loads(steady("validate", "--json", write_fleet(tmp_path)).stdout)
        assert (good["ok"], good["servers"], good["problems"]) == (True, 1, [])
        assert [each["key"] for each in good["warnings"]] == ["alerts.webhook"]

    def test_key_files_are_not_looked_for_where_the_worker_is_elsewhere(
        self, tmp_path: Path
    ) -> None:
        file = write_fleet(tmp_path, GOOD.replace('"key"', '"/elsewhere"'))
        assert steady("validate", file).exit_code == Exit.WRONG_INPUT
        assert steady("validate", "--remote-worker", file).exit_code == Exit.DONE


class TestAudit:
    def test_every_verdict_of_a_fleet_has_an_owner_and_a_reason(self, tmp_path: Path) -> None:
        ended = steady("audit", "--json", write_fleet(tmp_path))
        assert ended.exit_code == Exit.DONE
        document = json.loads(ended.stdout)
        assert document["fleet"] == "fleet"
        assert document["ok"] is True
        for row in document["verdicts"]:
            assert row["owner"] in ("nobody needed", "Remediation", "a person")
            assert row["why"]
            assert row["servers"] == ["gpu-1"]

    def test_for_people_it_is_a_table(self, tmp_path: Path) -> None:
        shown = steady("audit", write_fleet(tmp_path)).stdout
        assert any(line.split()[:2] == ["hung", "Remediation"] for line in shown.splitlines())
        assert any(line.split()[:3] == ["missing", "a", "person"] for line in shown.splitlines())

    def test_a_verdict_without_an_owner_is_exit_code_1(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.delitem(verdicts.OWNERS, verdicts.Verdict.SILENT)
        ended = steady("audit", write_fleet(tmp_path))
        assert ended.exit_code == Exit.NO
        assert "silent has no owner" in ended.stderr
        assert any(line.split()[:2] == ["silent", "nobody"] for line in ended.stdout.splitlines())

    def test_of_what_is_live_is_of_no_file(self, tmp_path: Path) -> None:
        ended = steady("audit", "--live", write_fleet(tmp_path))
        assert ended.exit_code == Exit.WRONG_INPUT
        assert ended.stderr == "--live is of the fleet in force: leave FILE out\n"

    def test_without_temporal_it_is_the_general_table_and_no_yes(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("worker.connection._TRY_EVERY", 60)
        ended = steady("audit", "--json")
        assert ended.exit_code == Exit.UNREACHED
        assert json.loads(ended.stdout)["fleet"] is None
        said = ended.stderr.splitlines()
        assert said[0] == "this is the table of any fleet, since yours could not be asked for"
        assert said[1].startswith("no Temporal server answered at ")


def test_a_host_that_shows_no_key_is_one_line() -> None:
    port = free_port()
    ended = steady("ssh-scan", "127.0.0.1", "--port", port)
    assert ended.exit_code == Exit.UNREACHED
    assert ended.stderr == (
        f"no key was shown: 127.0.0.1:{port}: the connection was refused: no SSH server listens"
        " there\n"
    )
