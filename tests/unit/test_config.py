"""The fleet as a model: what it refuses, how it resolves, and that it travels unchanged."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fleet.actions import target
from fleet.config import (
    CommandRestart,
    ComposeRestart,
    DockerRestart,
    Fleet,
    Host,
    Restart,
    ServerSpec,
    SystemdRestart,
)
from fleet.durations import parse, show
from fleet.policy import DailyBudget, Policy, RollingBudget, merged, normal

HOST = {"address": "10.0.0.1", "user": "steady", "key": "/key"}


def fleet(policy: dict[str, Any] | None = None, **tables: Any) -> Fleet:
    server = {
        "source": {"kind": "redis", "key": "worker:1"},
        "restart": {"kind": "docker", "host": "alpha", "name": "vllm"},
        "policy": policy or {},
    }
    return Fleet.model_validate({"hosts": {"alpha": HOST}, "servers": {"gpu-1": server}, **tables})


def places(refused: pytest.ExceptionInfo[ValidationError]) -> list[str]:
    return [".".join(map(str, error["loc"])) for error in refused.value.errors()]


_FINE = r"[0-9]{1,3}(\.[0-9]{1,6})?"


@given(st.from_regex(rf"({_FINE}h)?({_FINE}m)?{_FINE}s({_FINE}ms)?", fullmatch=True))
def test_a_duration_however_fine_is_shown_as_it_was_taken(text: str) -> None:
    """Otherwise a fleet would change on its way through JSON."""
    assert parse(show(parse(text))) == parse(text)


class TestOverrides:
    def test_a_servers_policy_goes_over_the_defaults_key_by_key(self) -> None:
        policy = fleet(
            {"persist_hung": "1m"}, defaults={"persist_hung": "9m", "observations": 5}
        ).policy("gpu-1")
        assert policy.persist_hung == parse("1m")
        assert policy.observations == 5
        assert policy.cooldown == Policy().cooldown

    def test_inside_a_budget_too(self) -> None:
        policy = fleet(
            {"budget": {"limit": 1}}, defaults={"budget": {"limit": 5, "window": "12h"}}
        ).policy("gpu-1")
        assert policy.budget == RollingBudget(limit=1, window=parse("12h"))

    def test_a_day_replaces_a_window_and_a_window_a_day(self) -> None:
        by_day = {"budget": {"limit": 5, "per_day_in": "Europe/Berlin"}}
        rolling = {"budget": {"limit": 4, "window": "12h"}}
        assert fleet(by_day, defaults=rolling).policy("gpu-1").budget == DailyBudget(
            limit=5, per_day_in="Europe/Berlin"
        )
        assert fleet(rolling, defaults=by_day).policy("gpu-1").budget == RollingBudget(
            limit=4, window=parse("12h")
        )
        assert fleet({"budget": {"limit": 1}}, defaults=by_day).policy(
            "gpu-1"
        ).budget == DailyBudget(limit=1, per_day_in="Europe/Berlin")

    def test_are_kept_in_one_spelling_so_that_equal_fleets_are_equal(self) -> None:
        assert fleet({"persist_hung": "180s"}) == fleet({"persist_hung": "3m"})

    def test_say_no_more_than_was_written(self) -> None:
        assert fleet({"persist_hung": "3m"}).servers["gpu-1"].policy == {"persist_hung": "3m"}

    def test_off_switches_a_threshold_off(self) -> None:
        assert fleet({"stalled_after": "off"}).policy("gpu-1").stalled_after is None

    def test_a_wrong_one_is_refused_at_its_key(self) -> None:
        with pytest.raises(ValidationError) as refused:
            fleet({"persist_hung": "soon", "nonsense": 1}, defaults={"observations": 0})
        assert places(refused) == [
            "defaults.observations",
            "servers.gpu-1.policy.persist_hung",
            "servers.gpu-1.policy.nonsense",
        ]

    def test_that_do_not_fit_the_defaults_are_refused_at_the_server(self) -> None:
        with pytest.raises(ValidationError) as refused:
            fleet({"cooldown": "20m"}, defaults={"load_limit": "15m"})
        assert places(refused) == ["servers.gpu-1.policy.load_limit"]

    def test_defaults_that_do_not_fit_are_told_once_and_not_for_every_server(self) -> None:
        with pytest.raises(ValidationError) as refused:
            fleet(defaults={"cooldown": "20m"})
        assert places(refused) == ["defaults.load_limit"]


class TestABudgetMustBeReachable:
    @pytest.mark.parametrize(
        "budget",
        [
            {"limit": 3, "window": "31m"},
            {"limit": 0, "window": "1m"},
            {"limit": 100, "window": "24h"},
            {"limit": 3, "per_day_in": "UTC"},
        ],
    )
    def test_and_is_taken(self, budget: dict[str, object]) -> None:
        Policy.model_validate({"budget": budget})

    @pytest.mark.parametrize(
        ("budget", "cooldown"),
        [
            ({"limit": 3, "window": "30m"}, "10m"),
            ({"limit": 100, "window": "24h"}, "15m"),
            ({"limit": 25, "per_day_in": "UTC"}, "1h"),
        ],
    )
    def test_or_is_refused(self, budget: dict[str, object], cooldown: str) -> None:
        with pytest.raises(ValidationError, match="can never be reached"):
            Policy.model_validate({"budget": budget, "cooldown": cooldown, "load_limit": "2h"})


class TestTwoServersMayNotRestartOneThing:
    @pytest.mark.parametrize(
        ("one", "other"),
        [
            (
                DockerRestart(kind="docker", host="a", name="x"),
                DockerRestart(kind="docker", host="a", name="x", cli=("sudo", "docker")),
            ),
            (
                ComposeRestart(kind="compose", host="a", directory="/srv/x", service="s"),
                ComposeRestart(kind="compose", host="a", directory="/srv/y/../x/", service="s"),
            ),
            (
                SystemdRestart(kind="systemd", host="a", unit="vllm"),
                SystemdRestart(
                    kind="systemd", host="a", unit="vllm.service", stop_timeout=parse("5s")
                ),
            ),
            (
                CommandRestart(kind="command", host="a", argv=("restart", "1")),
                CommandRestart(kind="command", host="a", argv=("restart", "1"), identity=("id",)),
            ),
        ],
    )
    def test_however_it_is_written(self, one: Restart, other: Restart) -> None:
        host = Host(address="gpu.example", user="u", key="/k")
        same = Host(address="GPU.example.", user="u", key="/other", known_hosts="/kh")
        assert target(one, host) == target(other, same)

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            (
                DockerRestart(kind="docker", host="a", name="x"),
                DockerRestart(kind="docker", host="a", name="y"),
            ),
            (
                DockerRestart(kind="docker", host="a", name="x"),
                DockerRestart(kind="podman", host="a", name="x"),
            ),
            (
                ComposeRestart(kind="compose", host="a", directory="/srv/x", service="s"),
                ComposeRestart(kind="compose", host="a", directory="/srv/x", service="t"),
            ),
            (
                SystemdRestart(kind="systemd", host="a", unit="vllm"),
                SystemdRestart(kind="systemd", host="a", unit="vllm", user=True),
            ),
            (
                CommandRestart(kind="command", host="a", argv=("restart", "1")),
                CommandRestart(kind="command", host="a", argv=("restart", "2")),
            ),
        ],
    )
    def test_while_different_things_on_one_host_are_no_matter(
        self, one: Restart, other: Restart
    ) -> None:
        host = Host(address="gpu.example", user="u", key="/k")
        assert target(one, host) != target(other, host)

    def test_another_port_is_another_machine(self) -> None:
        restart = DockerRestart(kind="docker", host="a", name="x")
        one = Host(address="gpu.example", port=2201, user="u", key="/k")
        other = Host(address="gpu.example", port=2202, user="u", key="/k")
        assert target(restart, one) != target(restart, other)

    def test_users_have_podman_containers_of_their_own_unless_root_is_asked(self) -> None:
        restart = DockerRestart(kind="podman", host="a", name="x")
        by_root = DockerRestart(kind="podman", host="a", name="x", cli=("sudo", "podman"))
        ann = Host(address="gpu.example", user="ann", key="/k")
        bob = Host(address="gpu.example", user="bob", key="/k")
        assert target(restart, ann) != target(restart, bob)
        assert target(by_root, ann) == target(by_root, bob)


def test_one_status_page_may_show_several_servers_in_different_fields() -> None:
    def at(prefix: str) -> dict[str, Any]:
        fields = {"state": f"{prefix}.state", "heartbeat": f"{prefix}.heartbeat"}
        return {"source": {"kind": "status", "url": "http://gpu/status", "fields": fields}}

    assert len(fleet(servers={"a": at("gpu0"), "b": at("gpu1")}).servers) == 2
    with pytest.raises(ValidationError, match="is the same record"):
        fleet(servers={"a": at("gpu0"), "b": at("gpu0")})


def test_a_spec_holds_one_server_with_everything_resolved() -> None:
    spec = fleet({"observations": 3}, defaults={"persist_hung": "1m"}).spec("gpu-1")
    assert spec.host == Host.model_validate(HOST)
    assert spec.store is None
    assert (spec.policy.observations, spec.policy.persist_hung) == (3, parse("1m"))
    assert ServerSpec.model_validate_json(spec.model_dump_json()) == spec


def test_a_server_that_is_not_there_has_no_spec() -> None:
    with pytest.raises(KeyError):
        fleet().spec("gpu-2")


def test_an_error_never_shows_what_stood_in_the_file() -> None:
    with pytest.raises(ValidationError) as refused:
        fleet(stores={"main": {"url": "redis://:hunter2@cache"}}, alerts={"webhook": "hunter2"})
    assert "hunter2" not in str(refused.value)


DURATIONS = st.integers(min_value=1, max_value=10**9).map(
    lambda ms: show(timedelta(milliseconds=ms))
)
OVERRIDES = st.fixed_dictionaries(
    {},
    optional={
        "mode": st.sampled_from(["act", "approve", "dry_run", "alert_only"]),
        "expected_off": st.booleans(),
        "observations": st.integers(min_value=2, max_value=20),
        "stalled_after": DURATIONS | st.just("off"),
        "persist_hung": DURATIONS,
        "retry_delays": st.lists(DURATIONS, min_size=1, max_size=20),
        "budget": st.one_of(
            st.fixed_dictionaries({}, optional={"limit": st.integers(0, 5)}),
            st.fixed_dictionaries(
                {"per_day_in": st.sampled_from(["UTC", "Europe/Berlin"])},
                optional={"limit": st.integers(0, 5)},
            ),
        ),
    },
)
SOURCES = st.one_of(
    st.fixed_dictionaries(
        {"kind": st.just("redis"), "key": st.text(min_size=1, max_size=20)},
        optional={"format": st.sampled_from(["hash", "json"]), "store": st.just("main")},
    ),
    st.fixed_dictionaries(
        {"kind": st.just("status"), "url": st.just("http://gpu/status")},
        optional={
            "token": st.just({"env": "TOKEN"}),
            "fields": st.just({"state": "a.b", "progress": ""}),
            "timeout": DURATIONS.filter(lambda text: parse(text) <= parse("5m")),
        },
    ),
)
RESTARTS = st.one_of(
    st.just({"kind": "podman", "host": "alpha", "name": "x", "cli": ["sudo", "podman"]}),
    st.just({"kind": "compose", "host": "alpha", "directory": "/srv", "service": "s"}),
    st.just({"kind": "systemd", "host": "alpha", "unit": "vllm@1.service", "user": True}),
    st.builds(
        lambda argv: {"kind": "command", "host": "alpha", "argv": argv},
        st.lists(
            st.text(
                st.characters(exclude_characters="\x00", exclude_categories=["Cs"]),
                min_size=1,
                max_size=9,
            ),
            min_size=1,
            max_size=4,
        ),
    ),
)


@given(source=SOURCES, restart=RESTARTS, policy=OVERRIDES, defaults=OVERRIDES)
def test_every_fleet_passes_through_json_unchanged(
    source: dict[str, Any],
    restart: dict[str, Any],
    policy: dict[str, Any],
    defaults: dict[str, Any],
) -> None:
    before = fleet(
        defaults=defaults,
        stores={"main": {"url": "rediss://cache:6380/1", "password": {"file": "/pw"}}},
        alerts={"webhook": {"env": "HOOK"}},
        servers={"gpu-1": {"source": source, "restart": restart, "policy": policy}},
    )
    after = Fleet.model_validate_json(before.model_dump_json())
    assert after == before
    assert after.spec("gpu-1") == before.spec("gpu-1")


@given(defaults=OVERRIDES, overrides=OVERRIDES)
def test_overrides_in_one_spelling_stay_as_they_are(
    defaults: dict[str, Any], overrides: dict[str, Any]
) -> None:
    once = normal(merged(normal(defaults), normal(overrides)))
    assert normal(once) == once
    assert normal(merged({}, once)) == once
