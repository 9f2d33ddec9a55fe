"""What is compared, and how each is set up: nginx, steady, Starlette with httpx, and LiteLLM."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.gateway.programs import LOAD_CORE, PROXY_CORE, Program, found, free_port, running

PATH = "/v1/chat/completions"
STREAMS = "/streams"

USAGE = {"prompt_tokens": 110, "total_tokens": 160, "completion_tokens": 50}
ANSWER = json.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1764531428,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "a" * 60},
                "finish_reason": "stop",
            }
        ],
        "usage": USAGE,
    }
)

#: For what is run as a module of this checkout.
HERE = {"PYTHONPATH": str(Path(__file__).parents[2])}

_NGINX = """\
daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log warn;
events {{ worker_connections 8192; }}
http {{
  access_log off; keepalive_requests 100000000; keepalive_timeout 300s;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  {inner}
}}
"""
_UPSTREAM = """
  server {{ listen 127.0.0.1:{port} backlog=1024; default_type application/json;
    location / {{ return 200 '{answer}'; }} }}
"""
_PROXY = """
  upstream up {{ server 127.0.0.1:{up}; keepalive 256; keepalive_requests 100000000; }}
  server {{ listen 127.0.0.1:{port} backlog=1024;
    proxy_http_version 1.1; proxy_set_header Connection "";
    location / {{ proxy_pass http://up; }}
    location /mirrored/ {{ mirror /copy; proxy_pass http://up/; }}
    location = /copy {{ internal; proxy_pass http://up{path}; }}
    location /streams/ {{ proxy_buffering off; proxy_pass http://127.0.0.1:{streams}/; }} }}
"""
_STEADY = """\
[servers.gpu-1]
source = {{ kind = "redis", key = "worker:1" }}
[servers.gpu-2]
source = {{ kind = "redis", key = "worker:2" }}
[gateway]
listen = "127.0.0.1:{port}"
admin = "127.0.0.1:{admin}"
"""
_ENDPOINT = """\
[endpoints.{name}]
path = "/{path}"
backends.{server}.url = "http://127.0.0.1:{up}"
"""
#: One that lives gets all; one that never answers has its places taken soon, as it would.
_CANDIDATE = """\
[endpoints.{name}.candidates.{kind}-{name}]
url = "http://127.0.0.1:{port}"
sample = 100
max_in_flight = {most}
"""
_LITELLM = """\
model_list:
- model_name: m
  litellm_params: {{ model: openai/m, api_base: "http://127.0.0.1:{up}/v1", api_key: none }}
- model_name: streams
  litellm_params: {{ model: openai/m, api_base: "http://127.0.0.1:{streams}/v1", api_key: none }}
litellm_settings:
  telemetry: false
"""


@dataclass(frozen=True)
class Upstreams:
    """Ports of what answers: requests, streams, nobody, and one that never reads."""

    up: int
    streams: int
    refused: int
    stalled: int


@contextlib.contextmanager
def nginx(inner: str, port: int, core: int, folder: Path) -> Iterator[Program]:
    own = folder / f"nginx-{port}"
    own.mkdir()
    file = own / "nginx.conf"
    file.write_text(_NGINX.format(folder=own, inner=inner))
    arguments = [found("nginx"), "-p", str(own), "-c", str(file), "-e", str(own / "error.log")]
    with running(arguments, port, core, own) as program:
        yield program


@contextlib.contextmanager
def upstream(folder: Path) -> Iterator[Program]:
    """It answers every request at once with the same JSON."""
    port = free_port()
    inner = _UPSTREAM.format(port=port, answer=ANSWER)
    with nginx(inner, port, LOAD_CORE, folder) as program:
        yield program


@contextlib.contextmanager
def streaming_upstream(folder: Path) -> Iterator[Program]:
    port = free_port()
    arguments = [sys.executable, "-m", "benchmarks.gateway.stream_upstream", str(port)]
    with running(arguments, port, LOAD_CORE, folder, environment=HERE) as program:
        yield program


@contextlib.contextmanager
def nginx_proxy(to: Upstreams, folder: Path) -> Iterator[Program]:
    port = free_port()
    inner = _PROXY.format(port=port, up=to.up, path=PATH, streams=to.streams)
    with nginx(inner, port, PROXY_CORE, folder) as program:
        yield program


@contextlib.contextmanager
def steady(to: Upstreams, folder: Path) -> Iterator[tuple[Program, int]]:
    """With the port of its metrics. Each way to mirror is an endpoint of its own."""
    port, admin = free_port(), free_port()
    parts = [_STEADY.format(port=port, admin=admin)]
    ports = {"refused": to.refused, "stalled": to.stalled}
    for base, server, up in (("", "gpu-1", to.up), ("streams", "gpu-2", to.streams)):
        for kind, candidates in (
            ("plain", {}),
            ("mirrored", {"live": up}),
            ("dead", ports),
            ("three", {"live": up, **ports}),
        ):
            name = f"{base}{kind}"
            path = f"{base}/{kind}".strip("/") if kind != "plain" else base
            parts.append(_ENDPOINT.format(name=name, path=path, server=server, up=up))
            for candidate, leads_to in candidates.items():
                most = 2000 if candidate == "live" else 100
                parts.append(_CANDIDATE.format(kind=candidate, name=name, port=leads_to, most=most))
    (folder / "fleet.toml").write_text("".join(parts))
    arguments = [str(Path(sys.executable).with_name("steady")), "gateway"]
    with running(arguments, port, PROXY_CORE, folder) as program:
        yield program, admin


@contextlib.contextmanager
def starlette(python: Path, to: Upstreams, folder: Path) -> Iterator[Program]:
    port = free_port()
    arguments = [str(python), "-m", "uvicorn", "starlette_proxy:app", "--port", str(port)]
    arguments += ["--app-dir", str(Path(__file__).parent), "--no-access-log"]
    ports = {"UP": str(to.up), "STREAMS": str(to.streams)}
    with running(arguments, port, PROXY_CORE, folder, environment=ports) as program:
        yield program


@contextlib.contextmanager
def litellm(python: Path, to: Upstreams, folder: Path) -> Iterator[Program]:
    port = free_port()
    config = folder / "litellm.yaml"
    config.write_text(_LITELLM.format(up=to.up, streams=to.streams))
    arguments = [str(python.with_name("litellm")), "--config", str(config), "--port", str(port)]
    arguments += ["--host", "127.0.0.1", "--num_workers", "1"]
    settings = {
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_LOG": "ERROR",
        # Nobody but this run reaches it, and the others check no key either.
        "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
    }
    with running(arguments, port, PROXY_CORE, folder, environment=settings) as program:
        yield program


def starlette_python(folder: Path) -> Path | None:
    """An environment for this run alone; none where it can't be made."""
    environment = folder / "starlette"
    python = environment / "bin" / "python"
    packages = ["starlette", "uvicorn", "httptools", "uvloop", "httpx"]
    commands = (
        [sys.executable, "-m", "venv", str(environment)],
        [str(python), "-m", "pip", "install", "--quiet", *packages],
    )
    for command in commands:
        done = subprocess.run(command, capture_output=True, check=False, env=dict(os.environ))
        if done.returncode:
            return None
    return python
