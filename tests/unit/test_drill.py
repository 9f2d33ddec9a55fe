"""What a drill decides, and what it is told as: no I/O, no clock."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fleet import drill
from fleet.config import (
    CommandRestart,
    ComposeRestart,
    DockerRestart,
    Drill,
    Fleet,
    Host,
    RedisSource,
    Restart,
    ServerSpec,
    SystemdRestart,
)
from fleet.contracts.drill import (
    DrillOutcome,
    DrillPhase,
    DrillStatus,
    Expected,
    Healing,
    Ledger,
    Survey,
)
from fleet.contracts.fleet import Pause, PresentPolicy, StormTerms
from fleet.contracts.host import HostState, HostStatus
from fleet.contracts.remediation import Moment, Outcome, Phase
from fleet.contracts.storm import Lease, StormState, Suspicion
from fleet.drill import Readiness
from fleet.drill_text import MEANING, in_words, markdown, promise, steps, too_late
from fleet.engine_sources import EngineSource
from fleet.engines.reading import EngineReading, EngineState, Page
from fleet.freezing import freeze_argv, left_behind, restart_policy_argv, thaw_argv
from fleet.policy import Mode, Policy
from fleet.readings import Reading, WorkState, missing

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)
DOCKER = DockerRestart(kind="docker", host="box", name="vllm")


def present(pause: Pause | None = None, **changed: Any) -> PresentPolicy:
    spec = {
        "name": "gpu-1",
        "source": RedisSource(key="worker"),
        "store": None,
        "restart": DOCKER,
        "host": Host(address="box", user="ops", key="/key"),
        "policy": Policy(),
        "drill": Drill(),
        **changed,
    }
    return PresentPolicy(
        version=1, spec=ServerSpec(**spec), pause=pause, sweep_every=timedelta(seconds=30)
    )


def reading(age: float = 1, state: WorkState = WorkState.PROCESSING) -> Reading:
    return Reading(server="gpu-1", at=NOW, state=state, heartbeat=NOW - age * SECOND)


class TestMayItBegin:
    def test_nothing_speaks_against_a_marked_server_that_is_well(self) -> None:
        assert drill.forbidden(present(), "gpu-1", NOW) == []
        assert drill.hindrances(Survey(ledger=Ledger(left=2)), Drill(), NOW) == []

    def test_each_reason_is_told_and_all_at_once(self) -> None:
        pause = Pause(until=NOW + SECOND)
        policy = Policy(mode=Mode.DRY_RUN)
        against = present(pause, drill=None, restart=None, policy=policy)
        said = drill.forbidden(against, "gpu-1", NOW)
        assert [line.split(":")[0] for line in said] == [
            "it is not marked for drills",
            "no restart is configured, so nothing would heal it",
            "its mode is dry_run, so steady would not restart it",
            "it is paused until 2026-11-30 12",
        ]

    def test_a_pause_that_is_over_is_none(self) -> None:
        assert drill.forbidden(present(Pause(until=NOW)), "gpu-1", NOW) == []

    def test_what_is_not_in_the_fleet_is_not_drilled(self) -> None:
        assert drill.forbidden(PresentPolicy(version=1), "x", NOW) == ["it is not in the fleet"]

    @pytest.mark.parametrize(("left", "spare", "may"), [(2, 1, True), (1, 1, False), (1, 0, True)])
    def test_the_last_restart_is_kept_for_a_real_incident(
        self, left: int, spare: int, may: bool
    ) -> None:
        said = drill.hindrances(Survey(ledger=Ledger(left=left)), Drill(spare=spare), NOW)
        assert (said == []) is may

    def test_a_guard_that_is_not_there_has_nothing_left(self) -> None:
        assert drill.hindrances(Survey(ledger=Ledger()), Drill(spare=0), NOW)

    def test_an_incident_that_is_open_or_held_or_has_just_been_restarted(self) -> None:
        open_one = Healing(began=NOW, running=True, incident="gpu-1@x")
        ledger = Ledger(left=3, incident="gpu-1@x", cooldown_until=NOW + SECOND)
        said = drill.hindrances(Survey(ledger=ledger, healing=open_one), Drill(), NOW)
        assert said[0] == "an incident of it is open: gpu-1@x"
        held = open_one.model_copy(update={"running": False})
        said = drill.hindrances(Survey(ledger=ledger, healing=held), Drill(), NOW)
        assert said == [
            "its incident gpu-1@x is open, and waits for a person or a recovery",
            "it was restarted lately: the cooldown lasts until 12:00:01 UTC",
        ]

    def test_a_fleet_that_restarts_nothing_or_as_much_as_it_may(self) -> None:
        lease = Lease(
            server="gpu-2", workflow_id="w", run="r", number=1, takes=SECOND, asked_at=NOW
        )
        busy = StormState(terms=StormTerms(servers=5), holders=[lease])
        assert drill.held_back(busy) == "as many as may be are being restarted now: gpu-2"
        assert drill.held_back(StormState(terms=StormTerms(servers=6), holders=[lease])) == ""
        suspect = Suspicion(began=NOW, shard=0, bad=3, managed=4, page_at=NOW)
        said = drill.held_back(StormState(suspicion=suspect))
        assert said.startswith("nothing is restarted in the fleet since 12:00:00 UTC")
        survey = Survey(ledger=Ledger(left=3), held_back=said)
        assert drill.hindrances(survey, Drill(), NOW) == [said]

    @pytest.mark.parametrize("status", HostStatus)
    def test_only_a_process_that_runs_is_frozen(self, status: HostStatus) -> None:
        may = status is HostStatus.RUNNING
        assert (drill.unfit(HostState(status=status), DOCKER) is None) is may

    def test_nor_one_whose_restart_would_be_refused(self) -> None:
        seen = HostState(status=HostStatus.RUNNING, hindrance="it was started with --rm")
        assert drill.unfit(seen, DOCKER) == "a restart would do harm: it was started with --rm"

    def test_a_command_without_an_identity_is_not_asked_for_one(self) -> None:
        own = CommandRestart(kind="command", host="box", argv=("r",))
        assert drill.unfit(HostState(status=HostStatus.UNKNOWN), own) is None


class TestIsItAtWork:
    @pytest.mark.parametrize(
        ("seen", "is_so"),
        [
            (reading(), Readiness.WORKS),
            (reading(state=WorkState.IDLE), Readiness.RESTS),
            (reading(state=WorkState.LOADING), Readiness.RESTS),
            (reading(state=WorkState.OTHER), Readiness.RESTS),
            (reading(state=WorkState.ERROR), Readiness.ILL),
            (reading(age=500), Readiness.ILL),
            (missing("gpu-1", NOW, "connection refused"), Readiness.ILL),
        ],
    )
    def test_only_of_what_works_a_hang_would_be_proved(
        self, seen: Reading, is_so: Readiness
    ) -> None:
        assert drill.readiness(seen, Policy())[0] is is_so

    @pytest.mark.parametrize("age", [1, 500])
    def test_one_that_was_frozen_at_rest_left_a_record_that_says_so(self, age: float) -> None:
        assert drill.at_rest(reading(age, WorkState.IDLE)) is True
        assert drill.at_rest(reading(age)) is False
        assert drill.at_rest(missing("gpu-1", NOW, "no answer")) is False

    def test_a_beat_after_the_freeze_is_seen_by_one_clock(self) -> None:
        assert drill.moved(reading(3), reading(1)) is True
        assert drill.moved(reading(3), reading(3)) is False
        assert drill.moved(None, reading(1)) is False
        assert drill.moved(reading(3), missing("gpu-1", NOW, "gone")) is False

    def test_a_new_process_works_when_it_beats_and_is_well(self) -> None:
        assert drill.works_again(reading(100), reading(1), Policy()) is True
        assert drill.works_again(reading(100), reading(100), Policy()) is False
        assert drill.works_again(reading(100), reading(1, WorkState.ERROR), Policy()) is False
        assert drill.works_again(reading(9), missing("gpu-1", NOW, "boot"), Policy()) is False


class TestEngines:
    """A vLLM server shows no heartbeat: what counts is work in flight, and what moves."""

    def page(self, steps: int, running: int = 1, started: str = "1", **page: Any) -> Reading:
        state = EngineState(running=running, steps=steps, witnesses={"steps": float(steps)})
        engine = EngineReading(profile="vllm", started=started, engines=(state,), **page)
        return Reading(server="gpu-1", at=NOW, engine=engine)

    def test_it_works_as_long_as_requests_are_in_flight(self) -> None:
        assert drill.readiness(self.page(7), Policy())[0] is Readiness.WORKS
        assert drill.readiness(self.page(7, running=0), Policy())[0] is Readiness.RESTS
        slow = replace(self.page(7), engine=EngineReading(profile="vllm", page=Page.SLOW))
        assert drill.readiness(slow, Policy())[0] is Readiness.ILL

    def test_one_that_was_frozen_at_rest_has_nothing_in_flight(self) -> None:
        assert drill.at_rest(self.page(7, running=0)) is True
        assert drill.at_rest(self.page(7)) is False

    def test_it_stands_still_when_no_witness_moves(self) -> None:
        assert drill.moved(self.page(7), self.page(7)) is False
        assert drill.moved(self.page(7), self.page(8)) is True

    def test_one_frozen_engine_of_two_is_frozen(self) -> None:
        def both(first: int, second: int) -> Reading:
            states = tuple(
                EngineState(label=str(n), running=1, steps=steps, witnesses={"steps": steps})
                for n, steps in enumerate((first, second))
            )
            engine = EngineReading(profile="vllm", engines=states)
            return Reading(server="gpu-1", at=NOW, engine=engine)

        assert drill.moved(both(7, 7), both(7, 9)) is False
        assert drill.moved(both(7, 7), both(8, 9)) is True

    def test_a_new_process_is_another_one_or_moves(self) -> None:
        assert drill.works_again(self.page(7), self.page(0, running=0, started="2"), Policy())
        assert not drill.works_again(self.page(7), self.page(7), Policy())

    def test_it_is_found_after_two_looks_two_waits_and_a_request(self) -> None:
        source = EngineSource(url="http://box:8000")
        goal = drill.expected(present(source=source))
        assert goal is not None
        assert goal.found == timedelta(seconds=60) + 2 * Policy().confirm_wait + source.deadline
        assert goal.found <= goal.restarted

    def test_one_whose_page_is_written_rarely_is_found_a_look_later(self) -> None:
        source = EngineSource(kind="sglang", url="http://box:8000")
        goal = drill.expected(present(source=source))
        assert goal is not None
        window = timedelta(seconds=35)
        assert goal.found == timedelta(seconds=90) + window + source.deadline


class TestTimes:
    def test_expected_are_the_policys_own_and_the_time_that_a_frozen_one_takes_to_stop(
        self,
    ) -> None:
        goal = drill.expected(present())
        assert goal is not None
        assert goal.found == timedelta(minutes=3)
        assert goal.restarted == timedelta(minutes=5, seconds=30) + DOCKER.stop_timeout
        assert goal.healed == goal.restarted + timedelta(minutes=10)

    def test_nothing_can_be_expected_without_a_restart(self) -> None:
        assert drill.expected(present(restart=None)) is None

    def test_every_wait_is_longer_than_what_it_waits_for(self) -> None:
        goal = drill.expected(present())
        assert goal is not None
        found, healed = drill.patience(goal, Policy())
        assert goal.found < found < healed
        assert goal.healed < healed < timedelta(hours=1)

    @pytest.mark.parametrize("healed", ["10s", "15m", "3h"])
    def test_it_is_looked_often_enough_and_not_for_ever(self, healed: str) -> None:
        goal = Expected.model_validate({"found": "1s", "restarted": "1s", "healed": healed})
        assert SECOND <= drill.look_every(goal) <= 15 * SECOND


class TestWhatCameOfIt:
    def healing(self, **changed: Any) -> Healing:
        return Healing(began=NOW, running=False, **changed)

    def test_a_remediation_from_before_the_freeze_is_not_the_drills(self) -> None:
        old = self.healing()
        assert drill.concerns(old, NOW) is old
        assert drill.concerns(old, NOW + SECOND) is None
        assert drill.concerns(None, NOW) is None

    @pytest.mark.parametrize("outcome", [Outcome.RESOLVED, Outcome.RECOVERED])
    def test_healed_is_restarted_and_well(self, outcome: Outcome) -> None:
        ended = self.healing(phase=Phase.CLOSED, outcome=outcome, restarts=1)
        assert drill.came_to(ended) == (DrillOutcome.HEALED, "")

    def test_recovered_without_a_restart_is_not_healed(self) -> None:
        ended = self.healing(phase=Phase.CLOSED, outcome=Outcome.RECOVERED, said="by itself")
        assert drill.came_to(ended) == (
            DrillOutcome.NOT_HEALED,
            "the incident ended as recovered: by itself",
        )

    @pytest.mark.parametrize(
        "outcome", [Outcome.RESTART_FAILED, Outcome.INTERNAL_ERROR, Outcome.NOT_CONFIRMED]
    )
    def test_what_is_tried_again_is_waited_for(self, outcome: Outcome) -> None:
        assert drill.came_to(self.healing(phase=Phase.CLOSED, outcome=outcome)) is None

    def test_what_waits_for_a_person_is_not_healed(self) -> None:
        given_up = self.healing(phase=Phase.ESCALATED, outcome=Outcome.BUDGET_EXHAUSTED, restarts=3)
        came_to = drill.came_to(given_up)
        assert came_to is not None
        assert came_to[0] is DrillOutcome.NOT_HEALED

    @pytest.mark.parametrize("phase", [None, Phase.PERSISTING, Phase.COOLING])
    def test_until_then_nothing_has_come_of_it(self, phase: Phase | None) -> None:
        assert drill.came_to(self.healing(phase=phase)) is None


class TestCommands:
    @pytest.mark.parametrize(
        ("restart", "freeze", "thaw"),
        [
            (DOCKER, "docker kill --signal=STOP vllm", "docker kill --signal=CONT vllm"),
            (
                DockerRestart(kind="podman", host="box", name="vllm", cli=("sudo", "-n", "podman")),
                "sudo -n podman kill --signal=STOP vllm",
                "sudo -n podman kill --signal=CONT vllm",
            ),
            (
                ComposeRestart(kind="compose", host="box", directory="/srv", service="w"),
                "docker compose --project-directory /srv kill --signal=SIGSTOP w",
                "docker compose --project-directory /srv kill --signal=SIGCONT w",
            ),
            (
                SystemdRestart(kind="systemd", host="box", unit="w.service", user=True),
                "systemctl --user kill --signal=SIGSTOP -- w.service",
                "systemctl --user kill --signal=SIGCONT -- w.service",
            ),
        ],
    )
    def test_the_signals_of_each_kind(self, restart: Restart, freeze: str, thaw: str) -> None:
        assert " ".join(freeze_argv(restart, Drill())) == freeze
        assert " ".join(thaw_argv(restart, Drill())) == thaw

    def test_the_operators_own_take_their_place(self) -> None:
        own = Drill(freeze=("f", "a b"), thaw=("t",))
        for restart in (DOCKER, CommandRestart(kind="command", host="box", argv=("r",))):
            assert freeze_argv(restart, own) == ("f", "a b")
            assert thaw_argv(restart, own) == ("t",)

    def test_only_containers_have_a_restart_policy_to_lose(self) -> None:
        assert restart_policy_argv(DOCKER, "vllm")[-1] == "vllm"
        systemd = SystemdRestart(kind="systemd", host="box", unit="w.service")
        assert restart_policy_argv(systemd, "w") == ()
        assert left_behind("no\n") == left_behind("") == ""
        assert '("unless-stopped")' in left_behind("unless-stopped\n")


class TestMark:
    def test_no_server_is_marked_by_itself(self) -> None:
        source = {"kind": "redis", "key": "worker"}
        fleet = Fleet.model_validate({"servers": {"gpu-1": {"source": source}}})
        assert fleet.spec("gpu-1").drill is None


class TestWords:
    def status(self, **changed: Any) -> DrillStatus:
        return DrillStatus.model_validate(
            {"server": "gpu-1", "phase": DrillPhase.CLOSED, "began_at": NOW, **changed}
        )

    def test_the_times_count_from_the_freeze(self) -> None:
        goal = Expected(found=3 * SECOND, restarted=5 * SECOND, healed=9 * SECOND)
        seen = self.status(expected=goal, frozen_at=NOW, found_at=NOW + 2 * SECOND)
        assert steps(seen) == [
            ("found", 2 * SECOND, 3 * SECOND),
            ("restarted", None, 5 * SECOND),
            ("works again", None, None),
            ("healed", None, 9 * SECOND),
        ]
        assert in_words(seen) == "found after 2s"
        assert too_late(seen, "healed", 9 * SECOND) == "not healed within 9s of the freeze"

    def test_a_person_confirms_what_it_costs_and_how_long_it_takes(self) -> None:
        said = promise(Policy(), drill.expected(present()))
        assert "that work is lost" in said
        assert "one restart of 3" in said
        assert "healthy within 15m40s" in said

    def test_the_page_in_the_temporal_ui_says_what_is_still_frozen(self) -> None:
        seen = self.status(
            outcome=DrillOutcome.CANCELLED,
            who="a*n*n",
            incident="gpu-1@x",
            frozen_at=NOW,
            found_at=NOW + SECOND,
            is_frozen=True,
            timeline=[Moment(at=NOW, text="frozen")],
        )
        shown = markdown(seen, "default")
        assert "**its process may still be frozen**" in shown
        assert "ordered by a\\*n\\*n" in shown
        assert "remediate%2Fgpu-1" in shown
        assert "- found after 1s" in shown
        assert shown.endswith("- `12:00:00` frozen")

    def test_every_outcome_has_a_meaning(self) -> None:
        assert set(MEANING) == set(DrillOutcome)
