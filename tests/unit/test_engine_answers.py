"""What statuses, bodies and lists of models are taken for."""

from datetime import UTC, datetime, timedelta

import pytest

from fleet.engines.answers import first_line, of_request
from fleet.engines.judge import find
from fleet.engines.models import Models, choose, listed, running, swapped
from fleet.engines.observe import observe
from fleet.engines.profiles import PROFILES
from fleet.engines.reading import Answer, Came, EngineReading, EngineState, Page
from fleet.engines.requests import tells_its_death
from fleet.policy import Policy
from fleet.readings import Reading
from fleet.verdicts import Verdict

AT = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
SLOW = Policy(load_limit=timedelta(minutes=20))


def looked(came: Came, *, started: str | None = None, at: datetime = AT) -> Reading:
    engine = EngineReading(
        profile="vllm",
        started=started,
        engines=(EngineState(witnesses={"kv": 0}),),
        answer=Answer(came=came, detail="503, said"),
    )
    return Reading(server="v-1", at=at, engine=engine)


@pytest.mark.parametrize(
    ("status", "said", "came"),
    [
        (200, "", Came.GIVEN),
        (204, "", Came.GIVEN),
        (429, "", Came.FULL),
        (503, "Service Overloaded", Came.FULL),
        (503, "request queue is full", Came.FULL),
        (503, "Loading model", Came.LOADING),
        (503, "server is shutting down", Came.LOADING),
        (503, "The model is currently scaling", Came.LOADING),
        (503, "", Came.FAILED),
        (500, "error while loading shared libraries", Came.FAILED),
        (502, "Bad Gateway", Came.FAILED),
        (404, "no such model", Came.REFUSED),
        (302, "", Came.REFUSED),
    ],
)
def test_what_a_request_came_to(status: int, said: str, came: Came) -> None:
    assert of_request(status, said).came is came


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (b"", ""),
        (b"\n\nRuntimeError: boom\nat x\n", "RuntimeError: boom"),
        (b'{\n  "error": {\n    "message": "out of memory\\nmore"}}', "out of memory"),
        (b'{"detail": "Not Found"}', "Not Found"),
        (b'{"error": "model missing"}', "model missing"),
        (b'{"error": [1]}', '{"error": [1]}'),
        (b"{broken", "{broken"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"x" * 500, "x" * 150),
    ],
)
def test_the_one_line_that_says_what_went_wrong(body: bytes, line: str) -> None:
    assert first_line(body) == line


class TestModels:
    def test_a_plain_list_does_not_tell_what_is_loaded(self) -> None:
        assert listed({"data": [{"id": "a"}, {"id": "b"}]}) == Models(("a", "b"))

    def test_a_router_and_lm_studio_do(self) -> None:
        router = [
            {"id": "a", "status": {"value": "unloaded"}},
            {"id": "b", "status": {"value": "loaded"}},
        ]
        assert listed({"data": router}) == Models(("a", "b"), ("b",))
        studio = [{"id": "a", "state": "not-loaded"}]
        assert listed({"data": studio}) == Models(("a",), ())

    def test_ollama_says_with_what_context(self) -> None:
        said = {"models": [{"name": "a:latest", "context_length": 8192}, {"name": "b"}]}
        assert running(said) == Models(("a:latest", "b"), ("a:latest", "b"), {"a:latest": 8192})

    def test_llama_swap_says_what_runs(self) -> None:
        said = {"running": [{"model": "a", "state": "ready"}, {"model": "b", "state": "starting"}]}
        assert swapped(said) == Models(("a",), ("a",))

    @pytest.mark.parametrize("said", [None, [], {}, {"data": 1}, {"models": "x"}, "x"])
    def test_what_is_no_list_tells_nothing(self, said: object) -> None:
        assert listed(said) is running(said) is swapped(said) is None

    @pytest.mark.parametrize(
        ("models", "wanted", "chosen"),
        [
            (Models(("a", "b")), None, "a"),
            (Models(("a", "b")), "c", "c"),
            (Models(("a", "b"), ("b",)), None, "b"),
            (Models(("a:latest",), ("a:latest",)), "a", "a:latest"),
            (Models(("a", "b"), ("b",)), "a", Came.ASLEEP),
            (Models(("a",), ()), None, Came.ASLEEP),
            (Models(()), None, Came.REFUSED),
            (None, None, Came.REFUSED),
            (None, "a", "a"),
        ],
    )
    def test_which_is_asked_for(
        self, models: Models | None, wanted: str | None, chosen: str | Came
    ) -> None:
        said = choose(models, wanted, "openai")
        assert (said.came if isinstance(said, Answer) else said) == chosen

    def test_where_ollama_does_not_tell_none_is(self) -> None:
        said = choose(None, "a", "ollama")
        assert isinstance(said, Answer)
        assert said.came is Came.REFUSED


class TestBooting:
    """A 5xx in boot is a load, and has the limit of one."""

    def test_an_error_soon_after_the_start_is_a_load_and_later_it_is_none(self) -> None:
        young, old = AT - timedelta(minutes=5), AT - timedelta(minutes=25)
        for started, verdict in ((young, Verdict.LOADING), (old, Verdict.DEGRADED)):
            reading = looked(Came.FAILED, started=f"{started.timestamp()!r}")
            assert find(reading, None, SLOW).verdict is verdict

    @pytest.mark.parametrize("started", [None, "f00d", "1.0,2.0"])
    def test_where_the_start_is_not_known_an_error_is_one(self, started: str | None) -> None:
        reading = looked(Came.FAILED, started=started)
        assert find(reading, None, SLOW).verdict is Verdict.DEGRADED

    def test_one_that_says_it_is_loading_for_longer_than_a_load_is_overdue(self) -> None:
        every, memory, seen = timedelta(minutes=5), None, []
        for number in range(6):
            reading = looked(Came.LOADING, at=AT + number * every)
            memory, finding = observe(reading, memory, SLOW, every)
            seen.append(finding.verdict)
        assert seen == [Verdict.LOADING] * 5 + [Verdict.OVERDUE]


def test_the_health_of_nobody_but_vllm_is_asked() -> None:
    """SGLang's generates a token, LiteLLM's asks every model, a NIM's is its proxy's."""
    own = {each.name for profile in PROFILES.values() for each in (profile, *profile.among)}
    assert {name for name in own if tells_its_death(name)} == {"vllm"}


def test_death_is_the_engines_own_word() -> None:
    assert find(looked(Came.DIED), None, Policy()).verdict is Verdict.ERROR
    died = EngineReading(profile="vllm", page=Page.DIED)
    reading = Reading(server="v-1", at=AT, engine=died)
    assert find(reading, None, Policy()).verdict is Verdict.ERROR
