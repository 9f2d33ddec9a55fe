"""What the Temporal UI shows of an incident."""

from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import pytest

from fleet import details
from fleet.contracts.remediation import Moment, Outcome, Phase, RemediationSignal, RemediationStatus
from fleet.contracts.sweep import SweepResult
from fleet.judge import Memory
from fleet.verdicts import Verdict

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
SINCE = NOW - timedelta(minutes=5)
STATUS = RemediationStatus(
    server="gpu-1",
    incident="gpu-1@20261130T115500.000Z",
    phase=Phase.PERSISTING,
    verdict=Verdict.HUNG,
    since=SINCE,
    job="render-7",
    next_step="read again",
    next_at=NOW + timedelta(seconds=150),
    timeline=[Moment(at=SINCE, text="incident opened")],
)


def shown(**facts: object) -> list[str]:
    status = RemediationStatus.model_validate({**STATUS.model_dump(), **facts})
    return details.remediation(status, "default").splitlines()


def moments(*texts: str, apart: timedelta = timedelta(0)) -> list[Moment]:
    return [Moment(at=SINCE + n * apart, text=text) for n, text in enumerate(texts)]


def test_an_incident_shows_where_it_stands_what_comes_next_and_how_it_came() -> None:
    assert shown() == [
        "**gpu-1** · persisting",
        "",
        "- verdict **hung** since 2026-11-30 11:55:00 UTC, job `render-7`",
        "- next: read again, at 2026-11-30 12:02:30 UTC",
        "- restarts in this incident: 0",
        "- incident `gpu-1@20261130T115500.000Z`",
        "- its ledger: [guard/gpu-1](namespaces/default/workflows/guard%2Fgpu-1)",
        "",
        "**What happened** (UTC)",
        "",
        "- `11:55:00` incident opened",
    ]


def test_an_end_shows_what_to_make_of_it_and_when_it_came_instead_of_a_next_step() -> None:
    lines = shown(
        phase=Phase.CLOSED,
        outcome=Outcome.RESOLVED,
        closed_at=NOW,
        next_step="restarted, and healthy since",
        next_at=None,
    )
    assert lines[0] == "**gpu-1** · **resolved**: restarted, and healthy since"
    assert "- closed 2026-11-30 12:00:00 UTC, after 5m" in lines
    assert not any("next:" in line for line in lines)


def test_what_waits_for_a_person_says_so_and_when_it_looks_again() -> None:
    lines = shown(phase=Phase.ESCALATED, outcome=Outcome.BUDGET_EXHAUSTED, pages=["not_recovered"])
    assert lines[0].endswith("the restart budget is used up; waits for a person")
    assert "- next: read again, at 2026-11-30 12:02:30 UTC" in lines
    assert "- pages: not_recovered" in lines


def test_what_recovered_after_it_was_given_up_says_that() -> None:
    said = "the restart budget was used up; it recovered later"
    lines = shown(phase=Phase.CLOSED, outcome=Outcome.BUDGET_EXHAUSTED, next_step=said)
    assert lines[0] == f"**gpu-1** · **budget_exhausted**: {said}"


def test_what_is_not_known_has_no_line() -> None:
    bare = RemediationStatus(server="gpu-1", phase=Phase.CONFIRMING)
    assert details.remediation(bare, "default").splitlines() == [
        "**gpu-1** · confirming",
        "",
        "- restarts in this incident: 0",
    ]


@pytest.mark.parametrize(
    "said", ["a\nb", "a\r\n- `12:00` all is well", "a\x0b\u2028b", "# a", "a\n\n**b**"]
)
def test_what_others_said_stays_on_its_line(said: str) -> None:
    lines = shown(timeline=moments(said, "incident opened"))
    assert len(lines) == len(shown()) + 1


@pytest.mark.parametrize(
    ("said", "written"),
    [
        ("<script>", "\\<script>"),
        ("*all* [is](well)", "\\*all\\* \\[is\\](well)"),
        ("`code`", "\\`code\\`"),
        ("/var/log/a_b_c.log", "/var/log/a_b_c.log"),
    ],
)
def test_what_others_said_is_no_markdown(said: str, written: str) -> None:
    assert f"- `11:55:00` {written}" in shown(timeline=moments(said))


def test_a_job_or_next_step_of_several_lines_stays_on_its_line() -> None:
    lines = shown(job="a\n- b`c", next_step="read\nagain", next_at=None)
    assert any(line.endswith("job `a - b'c`") for line in lines)
    assert "- next: read again" in lines


def test_of_a_long_timeline_the_newest_moments_are_shown_and_the_others_counted() -> None:
    lines = shown(timeline=moments(*(f"moment {n} " + "é" * 200 for n in range(60))))
    newest = [line for line in lines if "moment" in line]
    assert newest[-1].startswith("- `11:55:00` moment 59 ")
    assert f"- … {60 - len(newest)} earlier: the query `status` has them all" in lines


@pytest.mark.parametrize("said", ["sweep: hung (state processing) ", "é", "\N{GRINNING FACE}"])
def test_the_page_fits_into_a_url_that_proxies_take(said: str) -> None:
    lines = shown(timeline=moments(*((said * 300)[:300] for _ in range(60))))
    assert len(quote("\n".join(lines))) < 8000
    assert (said * 300)[:100] in lines[-1]


def test_moments_of_several_days_carry_their_date() -> None:
    lines = shown(timeline=moments("opened", "looked", apart=timedelta(days=1)))
    assert lines[-2:] == ["- `11-30 11:55:00` opened", "- `12-01 11:55:00` looked"]


def test_every_word_of_a_person_is_explained() -> None:
    words = set(RemediationSignal) - {RemediationSignal.OBSERVE}
    assert all(f"- `{word}`: " in details.WHAT_A_PERSON_CAN_SAY for word in words)


def test_a_page_says_how_many_of_its_rows_do_not_fit() -> None:
    rows = [f"- `gpu-{n:03}`: mode act" for n in range(500)]
    lines = details.page(["**hall**", ""], rows).splitlines()
    assert lines[2] == rows[0]
    assert lines[-1] == f"- … {500 - (len(lines) - 3)} more"
    assert len(quote("\n".join(lines))) < 8000


def test_a_page_whose_rows_all_fit_says_no_more() -> None:
    assert details.page(["head"], ["- one", "- two"]) == "head\n- one\n- two"


# --- a sweep -------------------------------------------------------------------------------------


def swept(**servers: Memory) -> list[str]:
    names = {name.replace("_", "-"): memory for name, memory in servers.items()}
    whys = dict.fromkeys(names, "heartbeat 7s old")
    result = SweepResult(shard=0, at=NOW, version=3, servers=names, whys=whys)
    return details.sweep(result, "default").splitlines()


def test_a_sweep_shows_who_is_not_well_since_when_and_why() -> None:
    lines = swept(
        gpu_1=Memory(at=NOW, verdict=Verdict.BUSY, since=SINCE),
        gpu_2=Memory(at=NOW, verdict=Verdict.HUNG, since=SINCE),
        gpu_3=Memory(at=NOW, verdict=Verdict.SILENT, since=SINCE),
    )
    link = "[remediate/gpu-2](namespaces/default/workflows/remediate%2Fgpu-2)"
    assert lines == [
        "**3 servers**, 2 not well, 0 in doubt (fleet version 3)",
        "",
        f"- `gpu-2` **hung** since 2026-11-30 11:55:00 UTC: heartbeat 7s old, {link}",
        "- `gpu-3` **silent** since 2026-11-30 11:55:00 UTC: heartbeat 7s old",
    ]


def test_a_sweep_shows_a_verdict_that_waits_for_its_confirmation() -> None:
    lines = swept(gpu_1=Memory(at=NOW, since=SINCE, pending=Verdict.HUNG, count=1))
    assert lines[0].startswith("**1 server**, 0 not well, 1 in doubt")
    assert lines[2] == "- `gpu-1` may be hung, the next sweep will tell: heartbeat 7s old"
