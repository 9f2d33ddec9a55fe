"""What on a host looks like inference, and how the answers of its programs are understood."""

import json

import pytest

from fleet.contracts.host import HostErrorType
from fleet.discovery import (
    Found,
    absent,
    docker,
    looks_like,
    once,
    podman,
    questions,
    units,
    user_units,
)
from fleet.host_replies import Reply, ReplyError
from fleet.listening import Listening

SECRET = "sk-planted-0123456789abcdef"


def container(**changes: str | None) -> str:
    shown = {
        "id": "c1",
        "name": "vllm-1",
        "image": "vllm/vllm-openai:v0.11.0",
        "command": f'"vllm serve --api-key {SECRET}"',
        "ports": "0.0.0.0:18000->8000/tcp, [::]:18000->8000/tcp",
        "directory": "",
        "service": "",
        **changes,
    }
    return json.dumps(shown) + "\n"


def unit(name: str, command: str = "/usr/bin/true", state: str = "active", **more: str) -> str:
    path = command.split(maxsplit=1)[0]
    lines = {
        "TimeoutStopUSec": "1min 30s",
        "ExecStart": f"{{ path={path} ; argv[]={command} ; ignore_errors=no ; }}",
        "Id": name,
        "LoadState": "loaded",
        "ActiveState": state,
        **more,
    }
    return "".join(f"{key}={value}\n" for key, value in lines.items())


def ok(text: str) -> Reply:
    return Reply(0, text)


class TestWhatItLooksLike:
    @pytest.mark.parametrize(
        ("name", "image", "command", "engine"),
        [
            ("chat", "vllm/vllm-openai:v0.11.0", "", "vLLM"),
            ("chat", "registry.example/team/my-vllm", "", "vLLM"),
            ("chat", "python:3.12", "python -m vllm.entrypoints.openai.api_server", "vLLM"),
            ("chat", "lmsysorg/sglang:latest", "", "SGLang"),
            ("chat", "", "/opt/llama.cpp/llama-server -m x.gguf", "llama.cpp"),
            ("chat", "ghcr.io/ggml-org/llama.cpp:server-cuda", "", "llama.cpp"),
            ("chat", "ghcr.io/huggingface/text-generation-inference:3", "", "TGI"),
            ("chat", "", "text-generation-launcher --port 80", "TGI"),
            ("chat", "nvcr.io/nvidia/tritonserver:25.10-py3", "", "Triton"),
            ("chat", "", "trtllm-serve model", "TensorRT-LLM"),
            ("ollama", "", "", "Ollama"),
            ("render-worker-3", "company/render", "", "a worker"),
            ("gpu_worker", "company/render", "", "a worker"),
            ("inference", "company/x", "", "a worker"),
        ],
    )
    def test_engines_and_workers_are_told(
        self, name: str, image: str, command: str, engine: str
    ) -> None:
        like = looks_like((name,), image, command)
        assert like is not None
        assert like[0] == engine

    @pytest.mark.parametrize(
        ("name", "image", "command"),
        [
            ("db", "postgres:17", ""),
            ("web", "company/web", "gunicorn --workers 4 app"),
            ("web", "company/web", "uvicorn --workers 4"),
            ("vllm-exporter", "company/exporter", ""),
            ("dcgm", "nvcr.io/nvidia/k8s/dcgm-exporter", ""),
            ("chat-ui", "ghcr.io/open-webui/open-webui:ollama", ""),
            ("llm-proxy", "company/proxy", ""),
            ("router", "ghcr.io/berriai/litellm:main", ""),
            ("worker-redis", "redis:8", ""),
            ("nvidia-persistenced", "", "/usr/bin/nvidia-persistenced"),
            ("coworkers", "company/hr", ""),
        ],
    )
    def test_what_stands_beside_it_is_left_out(self, name: str, image: str, command: str) -> None:
        assert looks_like((name,), image, command) is None


class TestContainers:
    def test_of_docker_are_read_one_a_line(self) -> None:
        text = container() + container(id="c2", name="db", image="postgres", command="postgres")
        assert docker(ok(text)) == [
            Found(
                *("docker", "vllm-1", "vLLM", "its image"),
                image="vllm/vllm-openai:v0.11.0",
                id="c1",
                listens=Listening("vllm", 18000, has_key=True),
            )
        ]

    def test_of_podman_have_other_fields(self) -> None:
        labels = {
            "com.docker.compose.project.working_dir": "/srv/chat",
            "com.docker.compose.service": "vllm",
        }
        listed = [
            {
                "Id": "p1",
                "Names": ["chat"],
                "Image": "x/vllm",
                "Command": ["serve"],
                "Labels": labels,
            },
            {"Id": "p2", "Names": ["db"], "Image": "postgres", "Command": None, "Labels": None},
        ]
        [found] = podman(ok(json.dumps(listed)))
        assert (found.kind, found.name, found.service) == ("podman", "chat", "vllm")
        assert found.directory == "/srv/chat"

    @pytest.mark.parametrize(
        ("shown", "port"),
        [
            ({"Ports": [{"host_ip": "", "host_port": 9000, "container_port": 8000}]}, 9000),
            (
                {"Ports": [{"host_port": 9000, "container_port": 7999, "range": 3}]},
                9001,
            ),
            ({"Ports": None, "Networks": None}, 8000),
            ({"Ports": [], "Networks": ["podman"]}, None),
            ({"Ports": [{"host_ip": "127.0.0.1", "host_port": 1, "container_port": 8000}]}, None),
            ({"Ports": ["nonsense", {"host_port": "x"}], "Networks": ["podman"]}, None),
        ],
    )
    def test_of_podman_say_their_ports_otherwise(
        self, shown: dict[str, object], port: int | None
    ) -> None:
        listed = {"Id": "p1", "Names": ["chat"], "Image": "x/vllm", **shown}
        [found] = podman(ok(json.dumps([listed])))
        assert found.listens is not None
        assert found.listens.port == port

    def test_there_may_be_none(self) -> None:
        assert docker(ok("")) == []
        assert podman(ok("null")) == []
        assert podman(ok("")) == []

    def test_the_command_line_is_looked_at_and_never_kept(self) -> None:
        text = container(name="chat", image="company/chat")
        [found] = docker(ok(text))
        assert found.because == "its command line"
        assert SECRET not in repr(found)

    def test_the_environment_is_never_asked_for(self) -> None:
        asked = " ".join(word for each in questions(sudo=True) for word in each.argv).lower()
        assert "env" not in asked
        assert "inspect" not in asked

    def test_an_old_link_is_not_taken_for_the_name(self) -> None:
        assert docker(ok(container(name="web/llm,vllm-1")))[0].name == "vllm-1"

    def test_line_breaks_in_what_a_host_says_do_not_get_through(self) -> None:
        [found] = docker(ok(container(image="vllm\n[servers.evil]\x1b[2J")))
        assert found.image == "vllm[servers.evil][2J"

    @pytest.mark.parametrize("text", ["what?", "[]", "7", '{"id"'])
    def test_what_is_no_list_of_containers_is_said_to_be_none(self, text: str) -> None:
        with pytest.raises(ReplyError, match="can't be understood"):
            docker(ok(text))

    @pytest.mark.parametrize("text", ["what?", "{}", "[7]"])
    def test_nor_is_it_for_podman(self, text: str) -> None:
        with pytest.raises(ReplyError, match="can't be understood"):
            podman(ok(text))

    def test_a_user_who_may_not_ask_is_told(self) -> None:
        denied = "permission denied while trying to connect to the Docker daemon socket"
        with pytest.raises(ReplyError) as caught:
            docker(Reply(1, "", denied))
        assert caught.value.kind is HostErrorType.DENIED


class TestUnits:
    def test_that_are_at_work_are_read_with_their_stop_time(self) -> None:
        text = "\n".join(
            [
                unit("vllm.service"),
                unit("llm@2.service", state="activating", TimeoutStopUSec="5s"),
                unit("sglang.service", state="failed"),
                unit("ssh.service"),
            ]
        )
        assert [(each.name, each.looks_like, each.stop_timeout) for each in units(ok(text))] == [
            ("vllm.service", "vLLM", "1m30s"),
            ("llm@2.service", "a worker", "5s"),
        ]

    def test_are_told_by_their_command_too(self) -> None:
        text = unit("chat.service", "/opt/venv/bin/vllm serve --api-key " + SECRET)
        [found] = units(ok(text))
        assert (found.looks_like, found.because) == ("vLLM", "its command line")
        assert SECRET not in repr(found)

    def test_of_the_user_s_own_systemd_say_so(self) -> None:
        assert [each.user for each in user_units(ok(unit("ollama.service")))] == [True]

    @pytest.mark.parametrize("text", ["infinity", "2h", "", "1w 2d"])
    def test_a_stop_time_that_no_fleet_file_takes_is_left_out(self, text: str) -> None:
        assert units(ok(unit("vllm.service", TimeoutStopUSec=text)))[0].stop_timeout == ""

    @pytest.mark.parametrize(
        "command",
        [
            "/usr/bin/docker run --rm --name vllm-1 vllm/vllm-openai",
            "/usr/bin/docker run --name=vllm-1 vllm/vllm-openai",
            "/usr/bin/docker start -a vllm-1",
        ],
    )
    def test_that_start_a_container_own_it(self, command: str) -> None:
        """Two servers for one process would have two locks and two budgets."""
        found = [*docker(ok(container())), *units(ok(unit("vllm.service", command)))]
        assert [each.kind for each in once(found)] == ["systemd"]


def test_a_docker_that_is_podman_in_disguise_shows_nothing_twice() -> None:
    listed = [{"Id": "c1", "Names": ["vllm-1"], "Image": "x/vllm", "Command": [], "Labels": {}}]
    found = [*docker(ok(container())), *podman(ok(json.dumps(listed)))]
    assert [each.kind for each in once(found)] == ["docker"]


@pytest.mark.parametrize(
    "reply",
    [
        Reply(127, "", "timeout: failed to run command 'podman': No such file or directory"),
        Reply(1, "", "System has not been booted with systemd as init system (PID 1)."),
    ],
)
def test_a_program_that_a_host_does_not_have_is_no_trouble(reply: Reply) -> None:
    assert absent(reply)
