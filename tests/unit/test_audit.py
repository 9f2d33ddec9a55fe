"""Who acts on a verdict, when the modes and the means of each server are counted in."""

from typing import Any

import pytest

from fleet import verdicts
from fleet.audit import Row, audit, ownerless
from fleet.config import Fleet
from fleet.verdicts import Owner, Verdict

RESTART = {"kind": "docker", "host": "alpha", "name": "vllm"}


def fleet(policy: dict[str, Any] | None = None, *, restart: bool = True) -> Fleet:
    server: dict[str, Any] = {"source": {"kind": "redis", "key": "a"}, "policy": policy or {}}
    if restart:
        server["restart"] = RESTART
    host = {"address": "10.0.0.1", "user": "steady", "key": "/key"}
    plain = {"source": {"kind": "redis", "key": "b"}, "restart": {**RESTART, "name": "other"}}
    return Fleet.model_validate(
        {"hosts": {"alpha": host}, "servers": {"special": server, "plain": plain}}
    )


def row_of(rows: list[Row], server: str, verdict: Verdict) -> Row:
    [row] = [row for row in rows if row.verdict is verdict and server in row.servers]
    return row


def test_every_verdict_that_a_detector_gives_is_listed_once() -> None:
    given = {verdict for found in verdicts.GIVEN_BY.values() for verdict in found}
    rows = audit(None)
    assert [row.verdict for row in rows] == [each for each in Verdict if each in given]
    assert ownerless(rows) == []


def test_servers_that_are_alike_share_a_row() -> None:
    assert row_of(audit(fleet()), "plain", Verdict.HUNG).servers == ("special", "plain")


@pytest.mark.parametrize("verdict", [Verdict.HUNG, Verdict.ERROR])
@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        ({"mode": "alert_only"}, "mode alert_only"),
        ({"mode": "dry_run"}, "mode dry_run"),
        ({"budget": {"limit": 0}}, "budget.limit is 0"),
    ],
)
def test_what_steady_may_not_restart_belongs_to_a_person(
    verdict: Verdict, policy: dict[str, Any], reason: str
) -> None:
    rows = audit(fleet(policy))
    special = row_of(rows, "special", verdict).ownership
    assert special is not None
    assert special.owner is Owner.PERSON
    assert special.why.startswith(reason)
    plain = row_of(rows, "plain", verdict).ownership
    assert plain is not None
    assert plain.owner is Owner.REMEDIATION


def test_what_steady_can_not_restart_belongs_to_a_person() -> None:
    ownership = row_of(audit(fleet(restart=False)), "special", Verdict.HUNG).ownership
    assert ownership is not None
    assert ownership.owner is Owner.PERSON
    assert ownership.why.startswith("no restart is configured")


def test_what_needs_approval_is_remediations_after_a_persons_word() -> None:
    ownership = row_of(audit(fleet({"mode": "approve"})), "special", Verdict.HUNG).ownership
    assert ownership is not None
    assert ownership.owner is Owner.REMEDIATION
    assert ownership.why.endswith("after a person's `steady approve`")


def test_a_machine_that_is_off_on_purpose_needs_nobody() -> None:
    ownership = row_of(audit(fleet({"expected_off": True})), "special", Verdict.MISSING).ownership
    assert ownership is not None
    assert ownership.owner is Owner.NOBODY


def test_a_threshold_that_is_off_gives_no_verdict() -> None:
    rows = audit(fleet({"stalled_after": "off"}))
    assert row_of(rows, "plain", Verdict.STALLED).servers == ("plain",)


def test_a_verdict_that_nobody_acts_on_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(verdicts.OWNERS, Verdict.SKEWED)
    assert [row.verdict for row in ownerless(audit(fleet()))] == [Verdict.SKEWED]
    assert [row.verdict for row in ownerless(audit(None))] == [Verdict.SKEWED]


def plain_engine(policy: dict[str, Any]) -> list[Row]:
    host = {"address": "10.0.0.1", "user": "steady", "key": "/key"}
    source = {"kind": "openai", "url": "http://10.0.0.1:8000"}
    server = {"source": source, "restart": RESTART, "policy": policy}
    return audit(Fleet.model_validate({"hosts": {"alpha": host}, "servers": {"e": server}}))


def test_what_needs_counters_is_never_said_of_an_engine_without() -> None:
    said = {row.verdict for row in plain_engine({})}
    assert Verdict.UNPROVEN in said
    assert said.isdisjoint({Verdict.STUCK, Verdict.UNRESPONSIVE, Verdict.SUSPECT})


def test_an_operator_may_have_one_without_counters_restarted_and_the_table_says_so() -> None:
    rows = plain_engine({"restart_unproven": True})
    assert Verdict.STUCK not in {row.verdict for row in rows}
    silent = row_of(rows, "e", Verdict.UNRESPONSIVE).ownership
    assert silent is not None
    assert silent.owner is Owner.REMEDIATION
    unproven = row_of(rows, "e", Verdict.UNPROVEN).ownership
    assert unproven is not None
    assert "restart_unproven" in unproven.why
