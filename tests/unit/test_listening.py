"""Where an engine listens, as its command line and Docker's list of ports tell it."""

import pytest

from fleet.listening import Listening, listening

BOTH = "0.0.0.0:{0}->{1}/tcp, [::]:{0}->{1}/tcp"


def found(engine: str, command: str = "", ports: str | None = "", network: str = "") -> Listening:
    on = listening(engine, command, ports, network)
    assert on is not None
    return on


@pytest.mark.parametrize(
    ("engine", "kind", "port"),
    [
        ("vLLM", "vllm", 8000),
        ("SGLang", "sglang", 30000),
        ("llama.cpp", "llamacpp", 8080),
        ("TGI", "tgi", 80),
        ("TensorRT-LLM", "trtllm", 8000),
        ("Triton", "triton", 8000),
        ("Ollama", "ollama", 11434),
        ("LMDeploy", "lmdeploy", 23333),
    ],
)
def test_each_engine_has_its_kind_and_its_port(engine: str, kind: str, port: int) -> None:
    unit = found(engine, ports=None)
    assert (unit.kind, unit.port) == (kind, port)
    of_host = found(engine, network="host")
    assert of_host.port == port
    published = found(engine, ports=BOTH.format(18000, port) + ", 0.0.0.0:9->9/tcp")
    assert published.port == 18000


def test_a_worker_of_somebodys_own_has_no_page() -> None:
    assert listening("a worker", "--port 8000", None, "") is None


@pytest.mark.parametrize(
    ("command", "port"),
    [
        ("vllm serve m --port 8123", 8123),
        ("vllm serve m --port=8123 --host ::", 8123),
        ("lmdeploy serve api_server --server-port 8123", 8123),
        ("vllm serve m --export 8123", 8000),
        ("vllm serve m --port 99999", 8000),
        ("vllm serve m --port abc", 8000),
    ],
)
def test_the_command_line_says_the_port(command: str, port: int) -> None:
    assert found("vLLM", command, ports=None).port == port


@pytest.mark.parametrize(
    ("ports", "port"),
    [
        ("0.0.0.0:9001->8000/tcp", 9001),
        (":::9001->8000/tcp", 9001),
        ("127.0.0.1:9000->8000/tcp, 10.0.0.5:9001->8000/tcp", 9001),
        ("0.0.0.0:9000-9002->7999-8001/tcp", 9001),
        ("0.0.0.0:9001->5000/tcp, 8000/tcp", 9001),
        ("0.0.0.0:9001->8000/tcp, 0.0.0.0:22->22/tcp", 9001),
    ],
)
def test_the_port_of_the_host_that_leads_to_it_is_found(ports: str, port: int) -> None:
    assert found("vLLM", ports=ports).port == port


@pytest.mark.parametrize(
    ("ports", "why"),
    [
        ("", "its port 8000 is not published on the host"),
        ("8000/tcp", "its port 8000 is not published on the host"),
        ("0.0.0.0:1->1/tcp, 0.0.0.0:2->2/tcp", "its port 8000 is not published on the host"),
        ("0.0.0.0:8000->8000/udp", "its port 8000 is not published on the host"),
        ("127.0.0.1:8000->8000/tcp", "published on 127.0.0.1:8000 only, for the host itself"),
        ("[::1]:8000->8000/tcp", "published on [::1]:8000 only, for the host itself"),
    ],
)
def test_what_cannot_be_reached_from_outside_says_why(ports: str, why: str) -> None:
    on = found("vLLM", ports=ports)
    assert on.port is None
    assert why in on.why


def test_tritons_metrics_have_a_port_of_their_own() -> None:
    ports = "0.0.0.0:9000->8000/tcp, 0.0.0.0:9002->8002/tcp"
    assert (found("Triton", ports=ports).port, found("Triton", ports=ports).metrics_port) == (
        *(9000, 9002),
    )
    assert found("Triton", "--metrics-port=8012", ports=None).metrics_port == 8012
    alone = found("Triton", ports="0.0.0.0:9000->8000/tcp")
    assert (alone.metrics_port, alone.page_why) == (
        *(None, "its port 8002 is not published on the host"),
    )


@pytest.mark.parametrize(
    ("engine", "command", "lacks"),
    [
        ("SGLang", "sglang.launch_server", "--enable-metrics"),
        ("SGLang", "sglang.launch_server --enable-metrics", ""),
        ("llama.cpp", "llama-server -m x", "--metrics"),
        ("llama.cpp", "llama-server --metrics -m x", ""),
        ("vLLM", "vllm serve m", ""),
    ],
)
def test_an_option_that_counters_need_is_missed(engine: str, command: str, lacks: str) -> None:
    assert found(engine, command).lacks == lacks


def test_what_else_the_command_line_tells() -> None:
    plain = found("vLLM", "vllm serve m")
    assert (plain.scheme, plain.has_key, plain.no_statistics) == ("http", False, False)
    command = "vllm serve m --ssl-certfile c --api-key sk-planted --disable-log-stats"
    told = found("vLLM", command)
    assert (told.scheme, told.has_key, told.no_statistics) == ("https", True, True)
    assert "planted" not in repr(told)
