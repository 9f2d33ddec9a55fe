import string
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.redaction import HIDDEN, redact, without_cut_line

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
    "-----BEGIN RSA PRIVATE KEY-----\n2026-11-30T12:00:00Z {}\n-----END RSA PRIVATE KEY-----",
    "{0}\n{0}\n-----END RSA PRIVATE KEY-----",
    # JSON, its arrays, and JSON inside of a text of JSON.
    '{{"args": ["serve", "--api-key", "{}"]}}',
    '{{"args": ["serve",\n    "--api-key",\n    "{}"\n]}}',
    '{{"args": ["--api-key={}"]}}',
    '{{"log": "{{\\"api_key\\": \\"{}\\"}}"}}',
    '{{"hf_token_for_models": "{}"}}',
    '{{"DB_PASSWORD_MAIN": "{}"}}',
    "['vllm', 'serve', '--hf-token', '{}']",
    "Namespace(api_key='{}', port=8000)",
    "headers=[(b'authorization', b'Bearer {}')]",
    # The end is missing, as at the end of a piece.
    'api_key: "{}',
    "secret='{}",
    # Headers.
    'Authorization: Digest username="a", response="{}"',
    "Authorization: AWS4-HMAC-SHA256 Credential=x/y, SignedHeaders=host, Signature={}",
    "proxy-authorization: Basic {}",
    "X-Api-Key: {}",
    "x-auth-token: {}",
    "Cookie: session={}; theme=dark",
    "set-cookie: sid={}; HttpOnly",
    "curl -H 'Authorization: Bearer {}' http://h/",
    "curl -u admin:{} http://h/",
    "got BEARER {}",
    # URLs.
    "postgres://steady:{}@db/steady",
    "redis://:with/slash@{}@cache:6379/0",
    "https://{}@github.com/x.git",
    "GET /v1?api_key={}&n=1",
    "GET /blob?sv=2024&sig={} 200",
    "GET /models?key={}",
    "posting to https://hooks.slack.com/services/T0/B0/{}",
    "https://discord.com/api/webhooks/123/{}",
    # Colours between a name and its value.
    "\x1b[36mapi_key\x1b[0m=\x1b[35m{}\x1b[0m",
    # What else has a name.
    "password = {}",
    "PGPASSWORD={} psql",
    "passphrase: {}",
    "secret_access_key={}",
    "AccountKey={};EndpointSuffix=core",
    "signature => {}",
    "my.service.token={}",
    "vllm serve --hf-token   {}",
    "--s3-secret {} --x",
    # Keys that show what they are.
    "using sk-ant-api03-{}",
    "using sk_live_{}",
    "using github_pat_{}",
    "using gho_{}",
    "using ghs_{}",
    "using glpat-{}",
    "using xoxb-{}",
    "using xapp-1-{}",
    "using nvapi-{}",
    "using gsk_{}",
    "using r8_{}",
    "using npm_{}",
    "using pypi-{}",
    "using dckr_pat_{}",
    "using hvs.{}",
    "using ya29.{}",
    "using AIza{0}{0}",
    "using SG.{0}.{0}",
    "bot 1234567890:AA{0}{0}",
]


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=15)
@given(secret=SECRETS, before=st.text("ab \n\t", max_size=5))
def test_a_secret_in_a_usual_form_does_not_come_out(form: str, secret: str, before: str) -> None:
    hidden = redact(f"{before}{form.format(secret)}\nlast line")
    assert secret not in hidden
    assert HIDDEN in hidden


@pytest.mark.parametrize(
    "secret",
    [
        "ASIAIOSFODNN7EXAMPLE",
        "AIzaSyDaGmWKa4JsXZ-HjGw7ISLn_3namBGewQe",
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
        "tokenizer='meta-llama/Llama-3-8B', tokenizer_mode=auto, skip_tokenizer_init=False",
        "prompt_token_ids: [128000, 9906], token=None, hf_token=None, api_key=null",
        '{"max_tokens": 512, "ignore_eos": false, "num_prompt_tokens": 16384}',
        "NVRM: Xid (PCI:0000:3b:00): 79, pid=1896, GPU has fallen off the bus.",
        "sha256:0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0",
        "2026-11-30T12:00:00.000000000Z INFO started at http://0.0.0.0:8000 (pid 4242)",
        "basic authentication is off; bearer of news",
        "GPU 00000000:3B:00.0, UUID GPU-b850f46d-d5ea-c752-ddf3-c4453e44d3f7",
    ],
)
def test_what_an_operator_needs_to_read_stays(line: str) -> None:
    assert redact(line) == line


@given(st.text(max_size=500))
def test_redacting_twice_changes_nothing_more(text: str) -> None:
    once = redact(text)
    assert redact(once) == once


@settings(max_examples=20)
@given(before=st.text(string.ascii_letters, max_size=30), secret=SECRETS)
def test_what_is_left_of_a_line_whose_name_was_cut_off_is_not_kept(
    before: str, secret: str
) -> None:
    """A piece may begin in the middle of a value."""
    whole = f"API_KEY={before}{secret}\nthe next line"
    for cut in range(len("API_KEY="), whole.index("\n")):
        assert redact(without_cut_line(whole[cut:])) == "the next line"


def test_of_one_endless_line_nothing_is_left() -> None:
    assert without_cut_line("x" * 1000) == ""


ADVERSE = (
    *(
        "a",
        "a-",
        "a.",
        "--",
        "--a",
        "-- ",
        "token",
        "--token",
        "token ",
        "token:",
        "token=",
        "['token', ",
    ),
    *(
        "password",
        'password="\\',
        "secret='",
        "access_key-",
        '"',
        "\\",
        '\\"',
        "'",
        "=",
        " ",
        "\n",
        "\t",
    ),
    *("a://", "a://b:", "://", "a@", "a:b@", "http://a:b", "?key=", "-u a:", "x" * 500 + "://"),
    *("-----BEGIN PRIVATE KEY-----", "-----BEGIN ", "-----END ", "-----END PRIVATE KEY-----"),
    *(
        "Authorization: ",
        "authorization",
        "bearer ",
        "cookie:",
        "eyJ",
        "eyJaaaaaaaa.",
        "hf_",
        "sk-",
    ),
    *("hf_aaaaaaaaaaaa", "SG.", "AIza", "12345678:", "\x1b[", "\x1b[1;", "xox", "hooks.slack.com/"),
)


def test_a_line_that_was_made_to_be_slow_takes_time_in_step_with_its_length() -> None:
    """In seconds for a tenth of the largest file; measured, none takes a twentieth of the bound."""
    for piece in ADVERSE:
        line = (piece * (100 * 1024 // len(piece) + 1))[: 100 * 1024]
        began = time.process_time()
        redact(line)
        assert time.process_time() - began < 5, piece
