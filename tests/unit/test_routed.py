"""Which gateways route to a server, and for how long it is drained there."""

from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from fleet.actions import DockerRestart, Host, RebootRestart
from fleet.config import Fleet
from fleet.contracts.remediation import Outcome
from fleet.gpu_memory import GpuMemory
from fleet.ladder import Step
from fleet.policy import Policy
from fleet.remediation import Decision
from fleet.routed import (
    LONGEST,
    drained_with,
    gateways,
    lasting,
    restart_takes,
    stays_drained,
    wait,
)
from fleet.verdicts import Verdict

TOKEN = {"admin_token": {"env": "T"}}
BOX = Host(address="127.0.0.1", user="ops", key="/key")


def fleet(**gateway: Any) -> Fleet:
    servers = {name: {"source": {"kind": "redis", "key": name}} for name in ("gpu-1", "gpu-2")}
    endpoints = {"chat": {"backends": {"gpu-1": {"url": "http://a:1"}}}}
    return Fleet.model_validate({"servers": servers, "endpoints": endpoints, "gateway": gateway})


def urls(**gateway: Any) -> list[str]:
    found = gateways(fleet(**TOKEN, **gateway), "gpu-1")
    assert found is not None
    return found.urls


def step(**more: Any) -> Step:
    return Step(action=DockerRestart(kind="docker", host="box", name="worker", **more), host=BOX)


def test_a_server_of_no_endpoint_is_drained_nowhere() -> None:
    assert gateways(fleet(**TOKEN), "gpu-2") is None


def _rebooting(*backends: str) -> Fleet:
    hosts = {"box": {"address": "10.0.0.1", "user": "ops", "key": "/key"}}
    servers: dict[str, Any] = {
        name: {
            "source": {"kind": "redis", "key": name},
            "restart": {"kind": "docker", "host": "box", "name": name},
        }
        for name in ("gpu-1", "gpu-2", "gpu-3")
    }
    also = ["gpu-2", "gpu-3"]
    servers["gpu-1"]["ladder"] = [{"kind": "reboot", "host": "box", "also_restarts": also}]
    endpoints = {"chat": {"backends": {name: {"url": f"http://{name}:1"} for name in backends}}}
    return Fleet.model_validate(
        {"hosts": hosts, "servers": servers, "endpoints": endpoints, "gateway": TOKEN}
    )


def test_backends_that_a_step_takes_along_are_drained_with_it_and_by_that_step_only() -> None:
    reboot = Step(
        action=RebootRestart(kind="reboot", host="box", also_restarts=("gpu-2", "gpu-3")), host=BOX
    )
    for backends, first, second in (
        (("gpu-1", "gpu-3"), ["gpu-1"], ["gpu-1", "gpu-3"]),
        (("gpu-2",), [], ["gpu-2"]),
    ):
        found = gateways(_rebooting(*backends), "gpu-1")
        assert found is not None
        assert drained_with(found, "gpu-1", step()) == first
        assert drained_with(found, "gpu-1", reboot) == second
    assert gateways(_rebooting("gpu-1"), "gpu-2") is None


def test_gateways_that_an_older_version_named_are_for_the_server_alone() -> None:
    found = gateways(_rebooting("gpu-1"), "gpu-1")
    assert found is not None
    older = found.model_copy(update={"backends": []})
    assert drained_with(older, "gpu-1", step(also_restarts=("gpu-2",))) == ["gpu-1"]


def test_where_the_gateway_takes_no_orders_none_are_given() -> None:
    assert gateways(fleet(), "gpu-1") is None


@pytest.mark.parametrize(
    ("admin", "url"),
    [
        ("127.0.0.1:9465", "http://127.0.0.1:9465"),
        ("gw.internal:80", "http://gw.internal:80"),
        ("0.0.0.0:9465", "http://127.0.0.1:9465"),
        ("[::]:9465", "http://[::1]:9465"),
        ("unix:///run/steady/gateway.sock", "unix:///run/steady/gateway.sock"),
    ],
)
def test_orders_go_where_the_gateway_takes_them(admin: str, url: str) -> None:
    assert urls(admin=admin) == [url]


def test_several_gateways_are_named() -> None:
    named = ("http://gw-1:9465", "https://gw-2/steady", "unix:///run/gw 3.sock")
    assert urls(admin_urls=named) == list(named)


@pytest.mark.parametrize("key", ["admin", "admin_urls"])
@pytest.mark.parametrize(
    ("address", "what"),
    [
        ("unix://run/gateway.sock", "write unix:///PATH, with three slashes"),
        ("unix:/run/gateway.sock", "write unix:///PATH, with three slashes"),
        ("unix:///", "the URL names no socket"),
        ("unix:///run/steady/", "the URL names no socket"),
        ("unix:///run/gateway.sock?x=1", "the URL names no socket"),
        (f"unix:///{'x' * 107}", "is over 107 bytes"),
    ],
)
def test_what_names_no_socket_is_refused(key: str, address: str, what: str) -> None:
    with pytest.raises(ValidationError, match=what):
        fleet(**{key: [address] if key == "admin_urls" else address})


def test_a_secret_has_no_place_in_the_url_of_a_gateway() -> None:
    with pytest.raises(ValidationError, match="admin_token"):
        fleet(admin_urls=["https://ann:pass@gw:9465"])


@pytest.mark.parametrize("verdict", [Verdict.HUNG, Verdict.STUCK, Verdict.UNRESPONSIVE])
def test_what_is_hung_finishes_nothing(verdict: Verdict) -> None:
    where = gateways(fleet(**TOKEN, drain_wait="1m", drain_wait_hung="3s"), "gpu-1")
    assert where is not None
    assert wait(where, verdict) == timedelta(seconds=3)
    assert wait(where, Verdict.ERROR) == wait(where, None) == timedelta(minutes=1)


def test_the_lease_is_longer_than_the_restart_and_its_verification() -> None:
    policy = Policy()
    plain, slow = step(), step(stop_timeout="20m")
    assert lasting(plain, policy) > restart_takes(plain) + policy.load_limit
    assert restart_takes(slow) > restart_takes(plain)
    parts = step(gpu_memory=GpuMemory(within="30m"))
    assert restart_takes(parts) > restart_takes(plain) + timedelta(minutes=90)


def test_the_lease_is_one_that_a_gateway_takes() -> None:
    policy = Policy(load_limit=timedelta(days=30))
    assert lasting(step(), policy) == LONGEST


@pytest.mark.parametrize("outcome", list(Outcome))
def test_what_recovered_is_undrained_whatever_the_outcome(outcome: Outcome) -> None:
    assert not stays_drained(Decision.end(outcome, "", recovered=True))


def test_what_a_person_ended_is_undrained() -> None:
    assert not stays_drained(Decision.end(Outcome.CANCELLED, ""))
    assert stays_drained(Decision.end(Outcome.RESTART_FAILED, ""))
