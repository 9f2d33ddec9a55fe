"""A fleet file that can't be used says where, what, and what to do: one line for each mistake."""

# ruff: noqa: E501 - the lines that people see stand here as they are seen

import os
from pathlib import Path

import asyncssh
import pytest

from fleet.config import Fleet, StatusSource
from tests.parts.fleet_files import GOOD, write_fleet
from tests.unit.wrong_fleets import NO_TOML, ONE_TABLE, TOGETHER
from worker.loading import Examined, FleetFileError, Problem, examine, load


def lines_of(examined: Examined, folder: Path) -> list[str]:
    return [str(problem).replace(f"{folder}/", "") for problem in examined.problems]


def complaints(folder: Path, text: str) -> list[str]:
    return lines_of(examine(write_fleet(folder, text), environment={}), folder)


@pytest.mark.parametrize(("text", "line"), NO_TOML.values(), ids=NO_TOML.keys())
def test_what_is_no_toml_is_named_with_its_line(tmp_path: Path, text: str, line: str) -> None:
    assert complaints(tmp_path, text) == [line]


@pytest.mark.parametrize(("text", "line"), ONE_TABLE.values(), ids=ONE_TABLE.keys())
def test_a_mistake_in_one_table_is_one_line_with_its_key(
    tmp_path: Path, text: str, line: str
) -> None:
    told = complaints(tmp_path, text)
    assert line in told
    assert len(told) == len(dict.fromkeys(told))


@pytest.mark.parametrize(("text", "line"), TOGETHER.values(), ids=TOGETHER.keys())
def test_tables_that_do_not_go_together_are_one_line(tmp_path: Path, text: str, line: str) -> None:
    assert complaints(tmp_path, text) == [line]


def test_no_complaint_repeats_a_secret_that_stands_in_the_file(tmp_path: Path) -> None:
    for text, _ in {**ONE_TABLE, **TOGETHER}.values():
        examined = examine(write_fleet(tmp_path, text))
        assert "hunter2" not in "".join(map(str, examined.problems + examined.warnings))


def test_every_mistake_is_told_at_once(tmp_path: Path) -> None:
    text = (
        GOOD
        + '\n[servers.gpu-2]\nsource = { kind = "redis", key = "worker:1" }\nmode = "act"\n'
        + '\n[servers.gpu-3]\nsource = { kind = "redis", key = "worker:1" }\n'
        + '\n[defaults]\nmode = "auto"\ncooldown = "soon"\n'
        + '\n[stores.main]\nurl = "http://cache"\n'
    )
    keys = [
        problem.key for problem in examine(write_fleet(tmp_path, text), environment={}).problems
    ]
    assert keys == [
        "defaults.mode",
        "defaults.cooldown",
        "stores.main.url",
        "servers.gpu-2.mode",
        "servers.gpu-3.source.key",
    ]


def test_a_host_with_a_mistake_is_not_called_missing_as_well(tmp_path: Path) -> None:
    assert complaints(tmp_path, GOOD.replace('"steady"', '""')) == [
        'fleet.toml: hosts.alpha.user: "" is not a user name — write one, like steady'
    ]


def test_defaults_with_a_mistake_make_no_server_contradictory(tmp_path: Path) -> None:
    text = GOOD + 'policy = { cooldown = "1h" }\n[defaults]\nload_limit = "2h"\nmode = "auto"\n'
    assert [line.split(": ")[1] for line in complaints(tmp_path, text)] == ["defaults.mode"]


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    assert lines_of(examine(tmp_path / "fleet.toml"), tmp_path) == [
        "fleet.toml: there is no such file — name another file, or start from fleet.example.toml"
    ]


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "fleet.toml").mkdir()
    assert lines_of(examine(tmp_path / "fleet.toml"), tmp_path) == [
        "fleet.toml: is a folder — name the file in it"
    ]


def test_another_encoding_is_named_with_its_line(tmp_path: Path) -> None:
    file = write_fleet(tmp_path)
    file.write_bytes(GOOD.encode() + b"# caf\xe9\n")
    assert lines_of(examine(file), tmp_path) == [
        "fleet.toml:10: byte 0xe9 is no UTF-8 — save the file as UTF-8"
    ]


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm(tmp_path: Path) -> None:
    file = write_fleet(tmp_path)
    file.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert examine(file).problems == ()


@pytest.mark.skipif(os.getuid() == 0, reason="root reads every file")
def test_a_file_that_can_not_be_read_is_one_line(tmp_path: Path) -> None:
    file = write_fleet(tmp_path)
    file.chmod(0)
    assert lines_of(examine(file), tmp_path) == [
        (
            "fleet.toml: can't be read: permission denied"
            " — name another file, or start from fleet.example.toml"
        )
    ]


def test_what_may_never_end_is_not_read(tmp_path: Path) -> None:
    """A pipe that nobody writes to would be waited for, and a device read, for ever."""
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path / "pipe", Path("/dev/zero")):
        assert [str(each) for each in examine(place).problems] == [
            f"{place}: is no regular file — name another file, or start from fleet.example.toml"
        ]


def test_a_file_beyond_reason_is_not_read_to_its_end(tmp_path: Path) -> None:
    file = tmp_path / "fleet.toml"
    file.write_bytes(b"#" * 4_000_001)
    assert lines_of(examine(file), tmp_path) == [
        "fleet.toml: is longer than 4000000 bytes — make it shorter"
    ]


class TestFilesThatTheFleetNames:
    def test_a_pipe_as_a_key(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        assert complaints(tmp_path, GOOD.replace('"key"', '"pipe"')) == [
            "fleet.toml: hosts.alpha.key: pipe is no regular file — name another file"
        ]

    def test_a_missing_key_file(self, tmp_path: Path) -> None:
        assert complaints(tmp_path, GOOD.replace('"key"', '"nokey"')) == [
            (
                "fleet.toml: hosts.alpha.key: there is no file nokey"
                " — make one with `ssh-keygen -t ed25519 -f nokey`, or name another"
            )
        ]

    def test_a_key_that_others_can_read_is_refused_as_ssh_does(self, tmp_path: Path) -> None:
        file = write_fleet(tmp_path)
        (tmp_path / "key").chmod(0o640)
        assert lines_of(examine(file), tmp_path) == [
            "fleet.toml: hosts.alpha.key: key can be read by others (mode 0640) — chmod 600 key"
        ]

    def test_a_key_with_a_passphrase(self, tmp_path: Path) -> None:
        file = write_fleet(tmp_path)
        key = asyncssh.generate_private_key("ssh-ed25519")
        (tmp_path / "key").write_bytes(key.export_private_key("pkcs8-pem", passphrase="hunter2"))
        assert lines_of(examine(file), tmp_path) == [
            (
                "fleet.toml: hosts.alpha.key: key has a passphrase, and no person is there to type it"
                " — name a key without one, that only steady uses"
            )
        ]

    def test_the_public_key_by_mistake(self, tmp_path: Path) -> None:
        file = write_fleet(tmp_path, GOOD.replace('"key"', '"key.pub"'))
        key = asyncssh.read_private_key(tmp_path / "key")
        (tmp_path / "key.pub").write_bytes(key.export_public_key())
        (tmp_path / "key.pub").chmod(0o600)
        assert lines_of(examine(file), tmp_path) == [
            "fleet.toml: hosts.alpha.key: key.pub is no private key — name the file without .pub"
        ]

    def test_a_folder_as_key(self, tmp_path: Path) -> None:
        assert complaints(tmp_path, GOOD.replace('"key"', '"."')) == [
            f"fleet.toml: hosts.alpha.key: {tmp_path} is a folder — name the file in it"
        ]

    def test_missing_known_hosts(self, tmp_path: Path) -> None:
        assert complaints(tmp_path, GOOD.replace('"known_hosts"', '"nobody"')) == [
            (
                "fleet.toml: hosts.alpha.known_hosts: there is no file nobody"
                " — `steady ssh-scan 10.0.0.1` prints the line to add, once you have compared its"
                " fingerprint"
            )
        ]

    def test_known_hosts_without_this_host(self, tmp_path: Path) -> None:
        text = GOOD.replace("10.0.0.1", "10.0.0.9").replace("user", "port = 2222\nuser")
        assert complaints(tmp_path, text) == [
            (
                "fleet.toml: hosts.alpha.known_hosts: known_hosts has no key of [10.0.0.9]:2222"
                " — `steady ssh-scan 10.0.0.9 --port 2222` prints the line to add, once you have"
                " compared its fingerprint"
            )
        ]

    def test_known_hosts_with_this_host_at_its_port(self, tmp_path: Path) -> None:
        text = GOOD.replace("10.0.0.1", "10.0.0.3").replace("user", "port = 2222\nuser")
        assert complaints(tmp_path, text) == []

    def test_a_private_key_in_the_place_of_known_hosts_is_not_printed(self, tmp_path: Path) -> None:
        [line] = complaints(tmp_path, GOOD.replace('"known_hosts"', '"key"'))
        assert line.startswith("fleet.toml: hosts.alpha.known_hosts: key is no known_hosts file — ")
        assert "b3Bl" not in line

    def test_a_secret_file_that_is_missing_or_empty(self, tmp_path: Path) -> None:
        (tmp_path / "empty").write_text("\n")
        text = (
            GOOD.replace('"redis"', '"redis", store = "main"')
            + '[stores.main]\nurl = "redis://cache"\npassword = { file = "empty" }\n'
            + '[alerts]\nwebhook = { file = "none" }\n'
        )
        assert complaints(tmp_path, text) == [
            "fleet.toml: alerts.webhook.file: there is no file none — make it, or name another",
            "fleet.toml: stores.main.password.file: empty is empty — write the secret into it",
        ]

    def test_a_token_of_a_status_url_is_looked_for_too(self, tmp_path: Path) -> None:
        text = GOOD.replace(
            'kind = "redis", key = "worker:1"',
            'kind = "status", url = "http://gpu/s", token = { file = "none" }',
        )
        assert complaints(tmp_path, text) == [
            (
                "fleet.toml: servers.gpu-1.source.token.file: there is no file none"
                " — make it, or name another"
            )
        ]

    def test_are_not_looked_at_where_the_worker_runs_elsewhere(self, tmp_path: Path) -> None:
        file = write_fleet(tmp_path, GOOD.replace('"key"', '"/on/another/machine"'))
        assert load(file, files_are_here=False).hosts["alpha"].key == "/on/another/machine"


def test_relative_paths_are_made_absolute_and_the_home_is_left_to_the_worker(
    tmp_path: Path,
) -> None:
    text = (
        GOOD.replace('"known_hosts"', '"~/.ssh/known_hosts"')
        .replace('"redis", key', '"status", url')
        .replace('"worker:1"', '"http://gpu/s", token = { file = "token" }')
    ) + (
        '[alerts]\nwebhook = { file = "hook" }\npage = [{ file = "pager" }, { env = "E" }]\n'
        '[stores.s]\nurl = "redis://h"\n'
    )
    fleet = load(
        write_fleet(tmp_path, text + 'password = { file = "/etc/pw" }\n'), files_are_here=False
    )
    assert fleet.hosts["alpha"].key == str(tmp_path / "key")
    assert fleet.hosts["alpha"].known_hosts == "~/.ssh/known_hosts"
    source = fleet.servers["gpu-1"].source
    assert isinstance(source, StatusSource)
    assert source.token is not None
    assert source.token.file == str(tmp_path / "token")
    assert fleet.alerts.webhook is not None
    assert fleet.alerts.webhook.file == str(tmp_path / "hook")
    assert [ref.file for ref in fleet.alerts.page] == [str(tmp_path / "pager"), None]
    assert fleet.stores["s"].password is not None
    assert fleet.stores["s"].password.file == "/etc/pw"


def test_a_path_is_relative_to_the_file_and_not_to_where_steady_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_fleet(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert load(Path("fleet.toml")).hosts["alpha"].key == str(tmp_path / "key")


def test_what_was_loaded_passes_through_json_unchanged(tmp_path: Path) -> None:
    fleet = load(write_fleet(tmp_path))
    assert type(fleet) is Fleet
    assert Fleet.model_validate_json(fleet.model_dump_json()) == fleet


def test_all_problems_are_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(FleetFileError) as refused:
        load(write_fleet(tmp_path, "a = 1\nb = 2\n"))
    assert [problem.key for problem in refused.value.problems] == ["a", "b"]
    assert str(refused.value).count("\n") == 1


def test_a_problem_is_one_line() -> None:
    whole = Problem("fleet.toml", 3, "a.b", "is wrong", "mend it")
    assert str(whole) == "fleet.toml:3: a.b: is wrong — mend it"
    assert str(Problem("fleet.toml", None, "", "is wrong", "")) == "fleet.toml: is wrong"


class TestWarnings:
    def warnings(self, folder: Path, text: str) -> list[str]:
        examined = examine(write_fleet(folder, text), environment={"SET": "x"})
        assert examined.fleet is not None
        return [str(each).replace(f"{folder}/", "") for each in examined.warnings]

    def test_nobody_is_told_of_anything(self, tmp_path: Path) -> None:
        assert self.warnings(tmp_path, GOOD) == [
            (
                "fleet.toml: alerts.webhook: is not set, so nobody is told of anything: alerts stand in"
                ' Temporal only — name it, like { env = "STEADY_WEBHOOK" }'
            )
        ]

    def test_a_secret_that_is_not_set_here_may_be_set_where_the_worker_runs(
        self, tmp_path: Path
    ) -> None:
        assert self.warnings(tmp_path, GOOD + '[alerts]\nwebhook = { env = "HOOK" }\n') == [
            (
                "fleet.toml: alerts.webhook.env: HOOK is not set in this environment"
                " — set it where the worker runs"
            )
        ]
        assert self.warnings(tmp_path, GOOD + '[alerts]\nwebhook = { env = "SET" }\n') == []

    def services(self, folder: Path, url: str) -> list[str]:
        file = write_fleet(folder, GOOD + '[alerts]\nnotice = [{ env = "OK" }, { env = "URL" }]\n')
        examined = examine(file, environment={"OK": "json://chat/hook", "URL": url})
        return [str(each).replace(f"{folder}/", "") for each in examined.warnings]

    @pytest.mark.parametrize("url", ["nothing://hunter2", "hunter2", "slack://hunter2", "json://["])
    def test_an_alert_service_whose_url_means_nothing_is_named_and_not_shown(
        self, tmp_path: Path, url: str, capfd: pytest.CaptureFixture[str]
    ) -> None:
        assert self.services(tmp_path, url) == [
            (
                "fleet.toml: alerts.notice[1]: the URL is none that apprise can make sense of"
                " — write it as https://github.com/caronc/apprise/wiki says for the service"
            )
        ]
        assert "hunter2" not in "".join(capfd.readouterr())

    def test_an_alert_service_that_would_be_told_again_when_one_recipient_fails(
        self, tmp_path: Path
    ) -> None:
        url = "mmost://bot@chat/3ccdd113474722377935511fc85d3dd4?to=ops,night"
        assert self.services(tmp_path, url) == [
            (
                "fleet.toml: alerts.notice[1]: the URL has 2 recipients, and if one fails all are"
                " told again — give each recipient a URL of its own"
            )
        ]

    def test_an_alert_service_in_a_file_is_looked_at_where_files_are_here(
        self, tmp_path: Path
    ) -> None:
        file = write_fleet(tmp_path, GOOD + '[alerts]\npage = [{ file = "pager" }]\n')
        (tmp_path / "pager").write_text("hunter2\n")
        (warning,) = examine(file, environment={}).warnings
        assert warning.key == "alerts.page[0]"
        assert examine(file, environment={}, files_are_here=False).warnings == ()

    def test_tables_that_no_server_uses(self, tmp_path: Path) -> None:
        text = (
            GOOD
            + '[alerts]\nwebhook = { env = "SET" }\n[stores.main]\nurl = "redis://h"\n'
            + '[hosts.b]\naddress = "10.0.0.2"\nuser = "u"\nkey = "key"\n'
            + 'known_hosts = "known_hosts"\n'
        )
        assert self.warnings(tmp_path, text) == [
            "fleet.toml: hosts.b: is used by no server — name it in one, or remove it",
            "fleet.toml: stores.main: is used by no server — name it in one, or remove it",
        ]


@pytest.mark.parametrize(
    ("count", "padding", "line"),
    [
        (2001, 1, "fleet.toml: servers: 2001 are more than the 2000 of a fleet — "),
        (1900, 480, "fleet.toml: the fleet has "),
    ],
)
def test_a_fleet_too_large_for_one_argument_of_temporal_is_refused(
    tmp_path: Path, count: int, padding: int, line: str
) -> None:
    servers = "".join(
        f'[servers.s{n}]\nsource = {{ kind = "redis", key = "{"k" * padding}{n}" }}\n'
        for n in range(count)
    )
    [told] = complaints(tmp_path, servers)
    assert told.startswith(line)
    assert told.endswith("— make two fleets of it, each in a Temporal namespace of its own")
