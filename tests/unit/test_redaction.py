import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.redaction import HIDDEN, redact

SECRETS = st.text(string.ascii_letters + string.digits, min_size=20, max_size=60)

FORMS = [
    "HF_TOKEN={}",
    "export MY_API_KEY={}",
    'OPENAI_API_KEY="{}"',
    "db_password: '{}'",
    '{{"api_key": "{}", "model": "m"}}',
    '{{"client_secret":"{}"}}',
    "Authorization: Bearer {}",
    "authorization: Basic {}",
    'headers={{"Authorization": "Bearer {}"}}',
    "got bearer {} from proxy",
    "vllm serve m --api-key {} --port 8000",
    "vllm serve m --api-key={}",
    "cloning https://oauth2:{}@gitlab.example/x.git",
    "redis://:{}@cache:6379/0",
    "using hf_{}",
    "using sk-{}",
    "using sk-proj-{}",
    "using ghp_{}",
    "-----BEGIN OPENSSH PRIVATE KEY-----\n{}\n-----END OPENSSH PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----\n{}\nthe log was cut here",
]


@pytest.mark.parametrize("form", FORMS)
@given(secret=SECRETS, before=st.text("ab \n\t", max_size=5))
def test_a_secret_in_a_usual_form_does_not_come_out(form: str, secret: str, before: str) -> None:
    hidden = redact(f"{before}{form.format(secret)}\nlast line")
    assert secret not in hidden
    assert HIDDEN in hidden


@pytest.mark.parametrize(
    "secret",
    [
        "AKIAIOSFODNN7EXAMPLE",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N",
    ],
)
def test_a_key_of_amazon_and_a_web_token_do_not_come_out(secret: str) -> None:
    assert redact(f"it is {secret} now") == f"it is {HIDDEN} now"


@pytest.mark.parametrize(
    "line",
    [
        "INFO 11-30 Avg prompt throughput: 0.0 tokens/s, Running: 3 reqs, GPU KV cache usage: 1.2%",
        "max_tokens=512, temperature=0.7",
        "prompt_tokens: 16384, --max-num-batched-tokens 8192",
        "CUDA error: an illegal memory access was encountered",
        "| 0  NVIDIA H100 80GB HBM3   On | 00000000:1B:00.0 Off |     0 |",
        '{"status":"running","exit":0}',
        "GET http://10.0.0.5:8000/metrics 200",
    ],
)
def test_what_an_operator_needs_to_read_stays(line: str) -> None:
    assert redact(line) == line


@given(st.text(max_size=500))
def test_redacting_twice_changes_nothing_more(text: str) -> None:
    once = redact(text)
    assert redact(once) == once
