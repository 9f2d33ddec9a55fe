"""Fleet files with one mistake each, and the one line that is said of it."""

# ruff: noqa: E501 - the lines that people see stand here as they are seen

from tests.parts.fleet_files import GOOD

DURATION = 'write a number and a unit (ms, s, m, h, d) in quotes, like "120s" or "3m"'
TOML = 'text and durations stand in quotes, like "3m"; TOML has true and false, and no null'
SECOND = GOOD + "\n[servers.gpu-2]\n"
COMMAND = 'kind = "command", host = "alpha", argv = ["/bin/restart"]'
SECOND_RESTARTS = (
    '\n[servers.gpu-2]\nsource = { kind = "redis", key = "worker:2" }\n'
    'restart = { kind = "docker", host = "alpha", name = "vllm" }\n'
)
OTHER = 'source = { kind = "redis", key = "worker:2" }\n'
REDIS = 'kind = "redis", key = "worker:1"'


def vllm(url: str, more: str = "") -> str:
    """The good file with a vLLM server instead of a heartbeat record."""
    return GOOD.replace(REDIS, f'kind = "vllm", url = "{url}"{more}')


VLLM = vllm("http://rack-1:8000")
AT_URL = "fleet.toml: servers.gpu-1.source.url: "


Table = dict[str, tuple[str, str]]

#: Not even TOML.
NO_TOML: Table = {
    "a text that is not closed": (
        GOOD + 'policy = { mode = "act }\n',
        "fleet.toml:10: policy: the text has no end on its line — close the quote",
    ),
    "a duration without quotes": (
        GOOD + "[defaults]\npersist_hung = 3m\n",
        (
            "fleet.toml:11: persist_hung: expected newline or end of document after a statement"
            f" — {TOML}"
        ),
    ),
    "a word without quotes": (
        GOOD + "[defaults]\nmode = act\n",
        f"fleet.toml:11: mode: invalid value — {TOML}",
    ),
    "null": (
        GOOD + "[defaults]\nstalled_after = null\n",
        f"fleet.toml:11: stalled_after: invalid value — {TOML}",
    ),
    "a list without its end": (
        GOOD + '[defaults]\nretry_delays = ["1s",\n',
        (
            "fleet.toml: ends in the middle of something: invalid value"
            " — close the bracket or quote that is open at its end"
        ),
    ),
    "a statement that is none": (
        "[fleet]\n= 3\n",
        "fleet.toml:2: invalid statement (column 1) — mend the TOML there",
    ),
    "two servers of one name": (
        GOOD + '[servers.gpu-1]\nsource = { kind = "redis", key = "b" }\n',
        (
            "fleet.toml:10: servers.gpu-1: two servers have the name gpu-1, first at line 7"
            " — give each a name of its own, or remove one"
        ),
    ),
    "two servers of one name, quoted": (
        '[servers."a"]\n[servers.b]\n[servers."a"]\n',
        (
            'fleet.toml:3: servers."a": two servers have the name a, first at line 1'
            " — give each a name of its own, or remove one"
        ),
    ),
    "another table twice": (
        GOOD + "[hosts.alpha]\n",
        (
            "fleet.toml:10: hosts.alpha: the table stands twice, first at line 1"
            " — make one table of the two"
        ),
    ),
    "a table that is a value already": (
        GOOD + "[servers.gpu-1.source]\n",
        "fleet.toml:10: servers.gpu-1.source: the table stands twice — make one table of the two",
    ),
    "a key twice": (
        GOOD + "restart = 3\n",
        "fleet.toml:10: restart: is set twice in one table — keep one of the two",
    ),
    "a key twice in an inline table": (
        GOOD + 'policy = { mode = "act", mode = "approve" }\n',
        "fleet.toml:10: mode: is set twice in one table — keep one of the two",
    ),
    "nesting without end": (
        "a = " + "[" * 5000,
        "fleet.toml: is nested too deeply — flatten it",
    ),
}

#: A mistake that shows in one table; the same file may have further ones.
ONE_TABLE: Table = {
    "nothing at all": (
        "",
        "fleet.toml: servers: the fleet has none — add one, beginning with [servers.NAME]",
    ),
    "a table of another name": (
        GOOD.replace("[servers.", "[server."),
        'fleet.toml: server: unknown key — did you mean "servers"?',
    ),
    "a table nobody can guess": (
        GOOD + "[zzz]\n",
        "fleet.toml: zzz: unknown key — known: fleet, alerts, storm, defaults, stores, hosts, servers, gateway, endpoints",
    ),
    "no restart at once": (
        GOOD + "[storm]\nrestarts_at_once = 0\n",
        "fleet.toml: storm.restarts_at_once: 0 is too small — choose at least 1",
    ),
    "a share in per cent": (
        GOOD + "[storm]\nshare = 40\n",
        (
            "fleet.toml: storm.share: 40 is no share"
            " — write a fraction between 0 and 1, like 0.4 for 40 %"
        ),
    ),
    "a share as a text": (
        GOOD + '[storm]\nshare = "40 %"\n',
        (
            "fleet.toml: storm.share: is no share"
            " — write a fraction between 0 and 1, like 0.4 for 40 %"
        ),
    ),
    "one server as a storm": (
        GOOD + "[storm]\nat_least = 1\n",
        "fleet.toml: storm.at_least: 1 is too small — choose at least 2",
    ),
    "no window for a storm": (
        GOOD + '[storm]\nwindow = "0s"\n',
        "fleet.toml: storm.window: 0s is out of range — choose from 1ms to 366d",
    ),
    "a key of a storm that nobody knows": (
        GOOD + "[storm]\nslots = 3\n",
        (
            "fleet.toml: storm.slots: unknown key — known: restarts_at_once, share, at_least,"
            " window, cooldown, page_after"
        ),
    ),
    "servers that are no table": (
        "servers = 3\n",
        "fleet.toml: servers: is a number — write a table",
    ),
    "a misspelt threshold": (
        GOOD + '[defaults]\npersist_hang = "3m"\n',
        'fleet.toml: defaults.persist_hang: unknown key — did you mean "persist_hung"?',
    ),
    "a misspelt threshold of one server": (
        GOOD + 'policy = { cool_down = "3m" }\n',
        'fleet.toml: servers.gpu-1.policy.cool_down: unknown key — did you mean "cooldown"?',
    ),
    "a threshold beside the policy": (
        GOOD + 'cooldown = "3m"\n',
        "fleet.toml: servers.gpu-1.cooldown: unknown key — it belongs in [servers.gpu-1.policy]",
    ),
    "a threshold in the wrong section": (
        GOOD + '[fleet]\ncooldown = "3m"\n',
        (
            "fleet.toml: fleet.cooldown: unknown key"
            " — it belongs in [defaults], or in the policy of a server"
        ),
    ),
    "a misspelt key of a restart": (
        GOOD.replace('name = "vllm"', 'nam = "vllm"').replace("restart =", "restart ="),
        "fleet.toml: servers.gpu-1.restart.name: is missing — add it; fleet.example.toml shows how",
    ),
    "a misspelt key of a budget": (
        GOOD + "[defaults]\nbudget = { limt = 3 }\n",
        'fleet.toml: defaults.budget.limt: unknown key — did you mean "limit"?',
    ),
    "a budget of a machine by the day": (
        GOOD.replace('key = "key"', 'key = "key"\nbudget = { limit = 2, per_day_in = "UTC" }'),
        "fleet.toml: hosts.alpha.budget.per_day_in: unknown key — known: limit, window",
    ),
    "a budget of a machine that nothing reaches": (
        GOOD.replace('key = "key"', 'key = "key"\nbudget = { limit = 9 }'),
        (
            "fleet.toml: hosts.alpha.budget.limit: 9 can never be reached: the budgets of its"
            " servers (1) allow 3 in 1d — choose at most 3, or leave the key out"
        ),
    ),
    "a window in a budget by day": (
        GOOD + '[defaults]\nbudget = { per_day_in = "UTC", window = "3h" }\n',
        "fleet.toml: defaults.budget.window: unknown key — known: limit, per_day_in",
    ),
    "a time zone that is none": (
        GOOD + '[defaults]\nbudget = { per_day_in = "Europe/Berln" }\n',
        (
            "fleet.toml: defaults.budget.per_day_in: 'Europe/Berln' is no time zone"
            ' — write an IANA name, like "Europe/Berlin"'
        ),
    ),
    "a duration in words": (
        GOOD + '[defaults]\npersist_hung = "3 minutes"\n',
        f"fleet.toml: defaults.persist_hung: '3 minutes' is no duration — {DURATION}",
    ),
    "a duration without a unit": (
        GOOD + "[defaults]\npersist_hung = 180\n",
        f"fleet.toml: defaults.persist_hung: 180 is no duration — {DURATION}",
    ),
    "a bare duration in a list": (
        GOOD + '[defaults]\nretry_delays = ["1s", "x"]\n',
        f"fleet.toml: defaults.retry_delays[1]: 'x' is no duration — {DURATION}",
    ),
    "a negative duration": (
        GOOD + '[defaults]\ncooldown = "-3m"\n',
        f"fleet.toml: defaults.cooldown: '-3m' is no duration — {DURATION}",
    ),
    "a duration of more than a year": (
        GOOD + '[defaults]\ncooldown = "400d"\n',
        "fleet.toml: defaults.cooldown: '400d' is longer than a year — choose at most 366d",
    ),
    "a threshold of no length": (
        GOOD + '[defaults]\nstale_after = "0s"\n',
        "fleet.toml: defaults.stale_after: 0s is out of range — choose from 1ms to 366d",
    ),
    "an interval too short": (
        GOOD + '[fleet]\nsweep_every = "500ms"\n',
        "fleet.toml: fleet.sweep_every: 500ms is out of range — choose from 1s to 1h",
    ),
    "one observation, which confirms nothing": (
        GOOD + "[defaults]\nobservations = 1\n",
        "fleet.toml: defaults.observations: 1 is too small — choose at least 2",
    ),
    "a shard too large": (
        GOOD + "[fleet]\nshard_size = 501\n",
        "fleet.toml: fleet.shard_size: 501 is too large — choose at most 500",
    ),
    "a fleet's name with a space": (
        GOOD + '[fleet]\nname = "my fleet"\n',
        (
            "fleet.toml: fleet.name: \"my fleet\" is not a name of letters, digits, '.', '_' and '-'"
            " — write one, like gpu-farm"
        ),
    ),
    "an unknown mode": (
        GOOD + '[defaults]\nmode = "auto"\n',
        (
            'fleet.toml: defaults.mode: "auto" is none of its values'
            ' — choose "act", "approve", "dry_run" or "alert_only"'
        ),
    ),
    "text for an Xid": (
        GOOD + '[defaults]\nincurable_xids = [79, "95"]\n',
        "fleet.toml: defaults.incurable_xids[1]: is text — write a whole number",
    ),
    "a state that no GPU has": (
        GOOD + '[defaults]\nincurable_gpu_states = ["broken"]\n',
        (
            'fleet.toml: defaults.incurable_gpu_states[0]: "broken" is none of its values'
            ' — choose "lost", "no_driver", "recovery_action", "reset_required", "uncorrectable_ecc",'
            ' "remapping_failed", "remapping_pending", "retirement_pending" or "sram_threshold"'
        ),
    ),
    "a way to the kernel's log as one text": (
        GOOD.replace("[servers", 'kernel_log = "sudo dmesg"\n[servers'),
        (
            "fleet.toml: hosts.alpha.kernel_log: a command is a list, since a text would be split"
            ' by a shell — write ["program", "argument"]'
        ),
    ),
    "a number for a budget": (
        GOOD + "[defaults]\nbudget = 5\n",
        (
            "fleet.toml: defaults.budget: is a number"
            ' — write a table, like { limit = 3, window = "24h" }'
        ),
    ),
    "text for a number": (
        GOOD + '[defaults]\nbudget = { limit = "three" }\n',
        "fleet.toml: defaults.budget.limit: is text — write a whole number",
    ),
    "a fraction of an observation": (
        GOOD + "[defaults]\nobservations = 2.5\n",
        "fleet.toml: defaults.observations: is a number — write a whole number",
    ),
    "text for yes or no": (
        GOOD + '[defaults]\nexpected_off = "sometimes"\n',
        "fleet.toml: defaults.expected_off: is text — write true or false",
    ),
    "a number for text": (
        GOOD.replace('"vllm"', "7"),
        "fleet.toml: servers.gpu-1.restart.name: is a number — write text in quotes",
    ),
    "a list for a table": (
        GOOD.replace('{ kind = "redis", key = "worker:1" }', "[]"),
        "fleet.toml: servers.gpu-1.source: is a list — write a table",
    ),
    "an empty list": (
        GOOD + "[defaults]\nescalated_reads = []\n",
        "fleet.toml: defaults.escalated_reads: is empty — give at least 1",
    ),
    "a source of unknown kind": (
        GOOD.replace('"redis"', '"redsi"'),
        'fleet.toml: servers.gpu-1.source.kind: there is no kind "redsi" — did you mean "redis"?',
    ),
    "a restart of unknown kind": (
        GOOD.replace('"docker"', '"kubernetes"'),
        (
            'fleet.toml: servers.gpu-1.restart.kind: there is no kind "kubernetes"'
            " — known: docker, podman, compose, systemd, reboot, command"
        ),
    ),
    "a source of no kind": (
        GOOD.replace('kind = "redis", ', ""),
        (
            "fleet.toml: servers.gpu-1.source.kind: is missing"
            ' — add kind = "redis", "status" or "vllm"; fleet.example.toml shows them'
        ),
    ),
    "a server without a source": (
        GOOD.replace('source = { kind = "redis", key = "worker:1" }\n', ""),
        "fleet.toml: servers.gpu-1.source: is missing — add it; fleet.example.toml shows how",
    ),
    "an empty key of a record": (
        GOOD.replace("worker:1", ""),
        "fleet.toml: servers.gpu-1.source.key: is empty — write it, or remove the key",
    ),
    "a word with two meanings": (
        GOOD.replace(
            'key = "worker:1"', 'key = "worker:1", words = { idle = ["a"], error = ["A "] }'
        ),
        "fleet.toml: servers.gpu-1.source.words.error: 'A ' is a word for idle too — remove it here, or give idle words without it",
    ),
    "a word that a default has for another state": (
        GOOD.replace('key = "worker:1"', 'key = "worker:1", words = { processing = ["Ready"] }'),
        "fleet.toml: servers.gpu-1.source.words.processing: 'ready' is a word for idle too — remove it here, or give idle words without it",
    ),
    "no word for work": (
        GOOD.replace('key = "worker:1"', 'key = "worker:1", words = { processing = [] }'),
        "fleet.toml: servers.gpu-1.source.words.processing: is empty — give at least 1",
    ),
    "a word of no letters": (
        GOOD.replace('key = "worker:1"', 'key = "worker:1", words = { idle = ["a", ""] }'),
        "fleet.toml: servers.gpu-1.source.words.idle[1]: is empty — write it, or remove the key",
    ),
    "one field for two things": (
        GOOD.replace('key = "worker:1"', 'key = "worker:1", fields = { progress = "state" }'),
        "fleet.toml: servers.gpu-1.source.fields.progress: 'state' is the field of state already — name another, or \"\" for none",
    ),
    "a field with an empty part": (
        GOOD.replace('key = "worker:1"', 'key = "worker:1", fields = { state = "a..b" }'),
        "fleet.toml: servers.gpu-1.source.fields.state: 'a..b' has an empty part — write the names with one dot between them",
    ),
    "true as a port": (
        GOOD.replace('user = "steady"', 'user = "steady"\nport = true'),
        "fleet.toml: hosts.alpha.port: is true or false — write a whole number",
    ),
    "true as a limit": (
        GOOD + "policy = { budget = { limit = true } }\n",
        "fleet.toml: servers.gpu-1.policy.budget.limit: is true or false — write a whole number",
    ),
    "a wait of no length in a list": (
        GOOD + 'policy = { escalated_reads = ["0s"] }\n',
        "fleet.toml: servers.gpu-1.policy.escalated_reads[0]: 0s is out of range — choose from 1ms to 366d",
    ),
    "a database that is no number": (
        GOOD + '[stores.main]\nurl = "redis://cache:6379/main"\n',
        "fleet.toml: stores.main.url: the database in the URL is no number — write it as one, like /0",
    ),
    "a database that is no number among the parameters": (
        GOOD + '[stores.main]\nurl = "unix:///run/redis.sock?db=main"\n',
        "fleet.toml: stores.main.url: the database in the URL is no number — write it as one, like /0",
    ),
    "a socket without its path": (
        GOOD + '[stores.main]\nurl = "unix://"\n',
        "fleet.toml: stores.main.url: the URL names no socket — write unix:///PATH, with three slashes",
    ),
    "a socket whose path has two slashes": (
        GOOD + '[stores.main]\nurl = "unix://run/redis.sock"\n',
        "fleet.toml: stores.main.url: the URL names no socket — write unix:///PATH, with three slashes",
    ),
    "a command as one text": (
        GOOD.replace(
            'kind = "docker", host = "alpha", name = "vllm"',
            'kind = "command", host = "alpha", argv = "systemctl restart vllm"',
        ),
        (
            "fleet.toml: servers.gpu-1.restart.argv: a command is a list, since a text would be split"
            ' by a shell — write ["program", "argument"]'
        ),
    ),
    "a program as one text": (
        GOOD.replace('name = "vllm"', 'name = "vllm", cli = "sudo docker"'),
        (
            "fleet.toml: servers.gpu-1.restart.cli: a command is a list, since a text would be split"
            ' by a shell — write ["program", "argument"]'
        ),
    ),
    "an option as a container's name": (
        GOOD.replace('"vllm"', '"--all"'),
        (
            'fleet.toml: servers.gpu-1.restart.name: "--all" is not a container\'s name'
            " — write one, like vllm"
        ),
    ),
    "a compose folder that is relative": (
        GOOD.replace(
            'kind = "docker", host = "alpha", name = "vllm"',
            'kind = "compose", host = "alpha", directory = "srv", service = "a"',
        ),
        (
            'fleet.toml: servers.gpu-1.restart.directory: "srv" is not an absolute path on the host'
            " — write one, like /srv/vllm"
        ),
    ),
    "a stop time-out beyond reason": (
        GOOD.replace('name = "vllm"', 'name = "vllm", stop_timeout = "2h"'),
        "fleet.toml: servers.gpu-1.restart.stop_timeout: 2h is out of range — choose from 0s to 1h",
    ),
    "a name with a space": (
        GOOD + '[servers."gpu 2"]\nsource = { kind = "redis", key = "b" }\n',
        (
            "fleet.toml: servers.\"gpu 2\": is no name — take letters, digits, '.', '_' and '-',"
            " at most 63, a letter or digit first"
        ),
    ),
    "a port in the address": (
        GOOD.replace("10.0.0.1", "10.0.0.1:2222"),
        "fleet.toml: hosts.alpha.address: '10.0.0.1:2222' holds a port — write port = 2222",
    ),
    "a user in the address": (
        GOOD.replace("10.0.0.1", "root@10.0.0.1"),
        (
            "fleet.toml: hosts.alpha.address: 'root@10.0.0.1' is more than an address"
            " — write a host name or IP address alone; user and port have keys of their own"
        ),
    ),
    "an address in brackets": (
        GOOD.replace("10.0.0.1", "[::1]"),
        "fleet.toml: hosts.alpha.address: '[::1]' is no host name or IP address — write it bare",
    ),
    "a port that is none": (
        GOOD.replace('user = "steady"', 'user = "steady"\nport = 70000'),
        "fleet.toml: hosts.alpha.port: 70000 is too large — choose at most 65535",
    ),
    "a password in a store's URL": (
        GOOD + '[stores.main]\nurl = "redis://:hunter2@cache"\n',
        (
            "fleet.toml: stores.main.url: the URL holds a user name or password"
            ' — write username = "NAME" and password = { env = "VARIABLE" }'
        ),
    ),
    "a password among a URL's parameters": (
        GOOD + '[stores.main]\nurl = "unix:///run/redis.sock?password=hunter2"\n',
        (
            "fleet.toml: stores.main.url: the URL holds a secret, its parameter 'password'"
            ' — write username = "NAME" and password = { env = "VARIABLE" }'
        ),
    ),
    "a token in a status URL": (
        GOOD.replace(
            'kind = "redis", key = "worker:1"',
            'kind = "status", url = "https://gpu/status?access_token=hunter2"',
        ),
        (
            "fleet.toml: servers.gpu-1.source.url: the URL holds a secret, its parameter 'access_token'"
            ' — write token = { env = "VARIABLE" }'
        ),
    ),
    "a URL of another kind": (
        GOOD + '[stores.main]\nurl = "postgres://u:hunter2@cache"\n',
        (
            "fleet.toml: stores.main.url: is no URL of a kind that is read here"
            " — begin it with redis:// or rediss:// or unix://"
        ),
    ),
    "a vLLM server without its URL": (
        GOOD.replace(REDIS, 'kind = "vllm"'),
        "fleet.toml: servers.gpu-1.source.url: is missing — add it; fleet.example.toml shows how",
    ),
    "a vLLM server by something that is no URL": (
        vllm("rack-1:8000"),
        AT_URL + "is no URL of a kind that is read here — begin it with http:// or https://",
    ),
    "a vLLM server without a host": (
        vllm("http://:8000"),
        AT_URL + "the URL names no host — write http://HOST:PORT/…",
    ),
    "a vLLM server by its metrics page": (
        vllm("http://rack-1:8000/metrics"),
        AT_URL + "/metrics is one of the server's pages — write the URL that lies before it",
    ),
    "a vLLM server by its metrics page with a slash": (
        vllm("http://rack-1:8000/base/metrics/"),
        AT_URL + "/metrics is one of the server's pages — write the URL that lies before it",
    ),
    "a vLLM server by its API": (
        vllm("http://rack-1:8000/v1"),
        AT_URL + "/v1 is one of the server's pages — write the URL that lies before it",
    ),
    "a vLLM server with a query": (
        vllm("http://rack-1:8000/?format=text"),
        AT_URL + "the URL has more than a path — end it before the ? or #",
    ),
    "a vLLM server with a fragment": (
        vllm("http://rack-1:8000/#top"),
        AT_URL + "the URL has more than a path — end it before the ? or #",
    ),
    "a vLLM server with a password": (
        vllm("http://me:hunter2@rack-1:8000"),
        AT_URL + 'the URL holds a user name or password — write api_key = { env = "VARIABLE" }',
    ),
    "a vLLM server with its key as a parameter": (
        vllm("http://rack-1:8000/?api_key=hunter2"),
        AT_URL
        + "the URL holds a secret, its parameter 'api_key'"
        + ' — write api_key = { env = "VARIABLE" }',
    ),
    "a vLLM server with its key itself": (
        vllm("http://rack-1:8000", ', api_key = "sk-hunter2"'),
        'fleet.toml: servers.gpu-1.source.api_key: is text — write { env = "VARIABLE" } or { file = "PATH" }',
    ),
    "a request of a kind that is not known": (
        vllm("http://rack-1:8000", ', request = "responses"'),
        'fleet.toml: servers.gpu-1.source.request: "responses" is none of its values — choose "completion", "chat", "embedding" or "rerank"',
    ),
    "a request of its own outside the base URL": (
        vllm("http://rack-1:8000", ', request = { path = "http://elsewhere/", body = {} }'),
        'fleet.toml: servers.gpu-1.source.request.path: is no path under the base URL — write it like "/v1/score"',
    ),
    "a request of its own that climbs out of the base URL": (
        vllm("http://rack-1:8000", ', request = { path = "/../admin", body = {} }'),
        'fleet.toml: servers.gpu-1.source.request.path: is no path under the base URL — write it like "/v1/score"',
    ),
    "a request of its own with what JSON can't write": (
        vllm("http://rack-1:8000", ', request = { path = "/v1/score", body = { top = nan } }'),
        "fleet.toml: servers.gpu-1.source.request.body: holds a number that JSON can't write — write a finite one",
    ),
    "a request of its own that is long": (
        vllm(
            "http://rack-1:8000",
            f', request = {{ path = "/v1/score", body = {{ t = "{"x" * 5000}" }} }}',
        ),
        "fleet.toml: servers.gpu-1.source.request.body: has 5009 bytes as JSON — keep it within 4096",
    ),
    "a CA for a server without TLS": (
        vllm("http://rack-1:8000", ', ca = "/etc/ca.pem"'),
        "fleet.toml: servers.gpu-1.source.ca: without https:// nothing is checked with it — leave it out",
    ),
    "a socket that is nowhere": (
        vllm("http://rack-1:8000", ', socket = "run/vllm.sock"'),
        "fleet.toml: servers.gpu-1.source.socket: is no absolute path — write it like /run/llama.sock",
    ),
    "a page behind a socket": (
        vllm(
            "http://rack-1:8000",
            ', socket = "/run/v.sock", metrics_url = "http://rack-1:9/metrics"',
        ),
        "fleet.toml: servers.gpu-1.source.metrics_url: is not read through a socket — leave one of both out",
    ),
    "ranks by name of an engine that has none": (
        GOOD.replace(REDIS, 'kind = "tgi", url = "http://rack-1:8000", named_ranks = true'),
        "fleet.toml: servers.gpu-1.source.named_ranks: no request to tgi can name a rank — leave it out",
    ),
    "ranks by name, and a request that names none": (
        vllm("http://rack-1:8000", ', named_ranks = true, request = "embedding"'),
        """fleet.toml: servers.gpu-1.source.named_ranks: this request can't name a rank — set request to "completion" or "chat", or leave it out""",
    ),
    "a request with a deadline that no engine keeps": (
        vllm("http://rack-1:8000", ', deadline = "99ms"'),
        "fleet.toml: servers.gpu-1.source.deadline: 99ms is out of range — choose from 100ms to 10m",
    ),
    "a request with a deadline that is none": (
        vllm("http://rack-1:8000", ', deadline = "11m"'),
        "fleet.toml: servers.gpu-1.source.deadline: 11m is out of range — choose from 100ms to 10m",
    ),
    "a model without a name": (
        vllm("http://rack-1:8000", ', model = ""'),
        "fleet.toml: servers.gpu-1.source.model: is empty — write it, or remove the key",
    ),
    "a probe that is a word": (
        vllm("http://rack-1:8000", ', probe = "no"'),
        "fleet.toml: servers.gpu-1.source.probe: is text — write true or false",
    ),
    "a heartbeat's key for a vLLM server": (
        vllm("http://rack-1:8000", ', key = "worker:1"'),
        'fleet.toml: servers.gpu-1.source.key: unknown key — did you mean "api_key"?',
    ),
    "a URL without its scheme": (
        GOOD.replace('kind = "redis", key = "worker:1"', 'kind = "status", url = "gpu:8000/s"'),
        (
            "fleet.toml: servers.gpu-1.source.url: is no URL of a kind that is read here"
            " — begin it with http:// or https://"
        ),
    ),
    "a URL without a host": (
        GOOD.replace('kind = "redis", key = "worker:1"', 'kind = "status", url = "http:///s"'),
        "fleet.toml: servers.gpu-1.source.url: the URL names no host — write http://HOST:PORT/…",
    ),
    "a URL with a port out of range": (
        GOOD.replace('kind = "redis", key = "worker:1"', 'kind = "status", url = "http://a:99999"'),
        "fleet.toml: servers.gpu-1.source.url: is no URL — port out of range 0-65535",
    ),
    "a secret with two places": (
        GOOD + '[alerts]\nwebhook = { env = "A", file = "b" }\n',
        (
            "fleet.toml: alerts.webhook: a secret has one place"
            ' — write { env = "VARIABLE" } or { file = "PATH" }'
        ),
    ),
    "a secret itself": (
        GOOD + '[alerts]\nwebhook = "https://hooks.example/hunter2"\n',
        'fleet.toml: alerts.webhook: is text — write { env = "VARIABLE" } or { file = "PATH" }',
    ),
    "a freeze that is a text": (
        GOOD + 'drill = { freeze = "kill -STOP 1", thaw = ["true"] }\n',
        (
            "fleet.toml: servers.gpu-1.drill.freeze: a command is a list, since a text would be split"
            ' by a shell — write ["program", "argument"]'
        ),
    ),
    "a service that is no list": (
        GOOD + '[alerts]\npage = { env = "PAGER" }\n',
        'fleet.toml: alerts.page: is a table — write a list, like [{ env = "STEADY_PAGER" }]',
    ),
    "a service with its secret": (
        GOOD + '[alerts]\nnotice = ["slack://hunter2"]\n',
        'fleet.toml: alerts.notice[0]: is text — write { env = "VARIABLE" } or { file = "PATH" }',
    ),
    "more services than are told": (
        GOOD + "[alerts]\nnotice = [" + '{ env = "A" }, ' * 21 + "]\n",
        "fleet.toml: alerts.notice: has too many entries — give at most 20",
    ),
    "a variable with its dollar": (
        GOOD + '[alerts]\nwebhook = { env = "$HOOK" }\n',
        (
            'fleet.toml: alerts.webhook.env: "$HOOK" is not the name of a variable'
            " — write one, like STEADY_TOKEN"
        ),
    ),
}

#: Tables that are good by themselves and do not go together.
TOGETHER: Table = {
    "a host that is not there": (
        GOOD.replace('host = "alpha"', 'host = "alhpa"'),
        'fleet.toml: servers.gpu-1.restart.host: there is no [hosts.alhpa] — did you mean "alpha"?',
    ),
    "a host nobody can guess": (
        GOOD.replace('host = "alpha"', 'host = "zzz"'),
        (
            "fleet.toml: servers.gpu-1.restart.host: there is no [hosts.zzz]"
            " — add that table, or name one of: alpha"
        ),
    ),
    "a store that is not there": (
        GOOD.replace('kind = "redis"', 'kind = "redis", store = "main"'),
        "fleet.toml: servers.gpu-1.source.store: there is no [stores.main] — add that table",
    ),
    "names that differ by case only": (
        GOOD + "\n[servers.GPU-1]\n" + OTHER,
        "fleet.toml: servers.GPU-1: differs only by case from servers.gpu-1 — choose another name",
    ),
    "one container for two servers": (
        SECOND + OTHER + 'restart = { kind = "docker", host = "alpha", name = "vllm" }\n',
        (
            "fleet.toml: servers.gpu-2.restart: restarts the same as servers.gpu-1.restart, so one"
            " thing would have two locks and two budgets"
            " — name another container, unit or host, or remove one of the two servers"
        ),
    ),
    "one container for two servers, by two names of one host": (
        SECOND
        + OTHER
        + 'restart = { kind = "docker", host = "beta", name = "vllm", stop_timeout = "5s" }\n'
        + '[hosts.beta]\naddress = "10.0.0.1"\nuser = "root"\n'
        + 'key = "key"\nknown_hosts = "known_hosts"\n',
        (
            "fleet.toml: servers.gpu-2.restart: restarts the same as servers.gpu-1.restart, so one"
            " thing would have two locks and two budgets"
            " — name another container, unit or host, or remove one of the two servers"
        ),
    ),
    "one record for two servers": (
        SECOND + 'source = { kind = "redis", key = "worker:1" }\n',
        (
            "fleet.toml: servers.gpu-2.source.key: is the same record as servers.gpu-1.source.key,"
            " which can't tell two servers apart — name the record of this server"
        ),
    ),
    "one vLLM server for two servers": (
        VLLM
        + '\n[servers.gpu-2]\nsource = { kind = "vllm", url = "http://rack-1:8000/" }\n'
        + 'restart = { kind = "docker", host = "alpha", name = "other" }\n',
        (
            "fleet.toml: servers.gpu-2.source.url: is the same record as servers.gpu-1.source.url,"
            " which can't tell two servers apart — name the record of this server"
        ),
    ),
    "one vLLM server for two servers, in other letters": (
        vllm("http://rack-1:80")
        + '\n[servers.gpu-2]\nsource = { kind = "vllm", url = "http://RACK-1" }\n',
        (
            "fleet.toml: servers.gpu-2.source.url: is the same record as servers.gpu-1.source.url,"
            " which can't tell two servers apart — name the record of this server"
        ),
    ),
    "a drill of what can't be restarted": (
        GOOD.replace('restart = { kind = "docker", host = "alpha", name = "vllm" }\n', "")
        + "drill = {}\n"
        + SECOND_RESTARTS,
        (
            "fleet.toml: servers.gpu-1.drill: a drill ends with a restart, and this server has none"
            " — add [servers.gpu-1.restart], or remove the drill"
        ),
    ),
    "a drill of a process that steady does not know": (
        GOOD.replace('kind = "docker", host = "alpha", name = "vllm"', COMMAND) + "drill = {}\n",
        (
            "fleet.toml: servers.gpu-1.drill: steady does not know the process behind a restart by"
            " command — add freeze and thaw, the commands that do it"
        ),
    ),
    "a freeze that nothing undoes": (
        GOOD + 'drill = { freeze = ["/bin/freeze"] }\n',
        (
            "fleet.toml: servers.gpu-1.drill.thaw: is missing: what one command does the other must"
            " undo — add it, a list of arguments"
        ),
    ),
    "a budget that can never be used up": (
        GOOD + 'policy = { budget = { limit = 3, window = "30m" } }\n',
        (
            "fleet.toml: servers.gpu-1.policy.budget.limit: 3 can never be reached, since restarts are"
            " at least 10m apart (cooldown, verify_after) and no more than that fit into the window of"
            " 30m — make the limit smaller or the window longer"
        ),
    ),
    "a budget by day that can never be used up": (
        GOOD
        + 'policy = { cooldown = "9h", load_limit = "9h",'
        + ' budget = { per_day_in = "Europe/Berlin" } }\n',
        (
            "fleet.toml: servers.gpu-1.policy.budget.limit: 3 can never be reached, since restarts are"
            " at least 9h apart (cooldown, verify_after) and no more than that fit into a day"
            " — make the limit smaller"
        ),
    ),
    "a load limit that the cooldown hides": (
        GOOD + '[defaults]\nload_limit = "5m"\n',
        (
            "fleet.toml: defaults.load_limit: 5m can never be reached, since nothing is judged within"
            ' the cooldown of 10m — make it at least "10m"'
        ),
    ),
    "a default that one server's override makes pointless": (
        GOOD + 'policy = { cooldown = "20m" }\n[defaults]\nload_limit = "15m"\n',
        (
            "fleet.toml: servers.gpu-1.policy.load_limit: 15m can never be reached, since nothing is"
            ' judged within the cooldown of 20m — make it at least "20m"'
        ),
    ),
    "a ladder without its first step": (
        (
            SECOND + OTHER + '[[servers.gpu-2.ladder]]\nkind = "reboot"\nhost = "alpha"\n'
            'also_restarts = ["gpu-1"]\n'
        ),
        (
            "fleet.toml: servers.gpu-2.ladder: has no first step: it is what follows after `restart`"
            " — add [servers.gpu-2.restart]"
        ),
    ),
    "a ladder with the strongest first": (
        (
            GOOD + '[[servers.gpu-1.ladder]]\nkind = "reboot"\nhost = "alpha"\n'
            '[[servers.gpu-1.ladder]]\nkind = "systemd"\nhost = "alpha"\nunit = "vllm"\n'
        ),
        (
            "fleet.toml: servers.gpu-1.ladder[1]: a unit comes after a reboot, which is stronger"
            " — put the weakest first: container, compose project, unit, reboot"
        ),
    ),
    "a step on another machine": (
        (
            GOOD + '[[servers.gpu-1.ladder]]\nkind = "reboot"\nhost = "beta"\n'
            '[hosts.beta]\naddress = "10.0.0.2"\nuser = "root"\nkey = "key"\n'
            'known_hosts = "known_hosts"\n'
        ),
        (
            "fleet.toml: servers.gpu-1.ladder[0]: beta is another machine than alpha of the"
            " first step — name the same machine; another user of it may have a [hosts] table of its"
            " own"
        ),
    ),
    "a step on a host that is not there": (
        GOOD + '[[servers.gpu-1.ladder]]\nkind = "reboot"\nhost = "alhpa"\n',
        (
            "fleet.toml: servers.gpu-1.ladder[0].host: there is no [hosts.alhpa]"
            ' — did you mean "alpha"?'
        ),
    ),
    "a reboot that takes another server along": (
        (
            SECOND + OTHER + 'restart = { kind = "docker", host = "alpha", name = "other" }\n'
            '[[servers.gpu-1.ladder]]\nkind = "reboot"\nhost = "alpha"\n'
        ),
        (
            "fleet.toml: servers.gpu-1.ladder[0]: reboot of alpha restarts gpu-2 as well, which may"
            " be at work — leave the step out; or, where that is meant, name every one of them in"
            " also_restarts"
        ),
    ),
    "a first step that takes another server along": (
        SECOND + OTHER + 'restart = { kind = "reboot", host = "alpha" }\n',
        (
            "fleet.toml: servers.gpu-2.restart: reboot of alpha restarts gpu-1 as well, which may"
            " be at work — leave the step out; or, where that is meant, name every one of them in"
            " also_restarts"
        ),
    ),
    "a project that two servers would restart": (
        (
            SECOND
            + OTHER
            + 'restart = { kind = "docker", host = "alpha", name = "other" }\n'
            + "".join(
                f'[[servers.{name}.ladder]]\nkind = "compose"\nhost = "alpha"\n'
                'directory = "/srv/models"\n'
                for name in ("gpu-2", "gpu-1")
            )
            + 'also_restarts = ["gpu-2"]\n'
        ),
        (
            "fleet.toml: servers.gpu-2.ladder[0]: compose project /srv/models restarts gpu-1 as well,"
            " which may be at work — leave the step out; or, where that is meant, name every one of"
            " them in also_restarts"
        ),
    ),
    "a whole project as the first step": (
        GOOD.replace(
            'kind = "docker", host = "alpha", name = "vllm"',
            'kind = "compose", host = "alpha", directory = "/srv/models"',
        ),
        (
            "fleet.toml: servers.gpu-1.restart.service: is missing, and without it the whole project"
            " would be restarted — name the service of this server; a whole project belongs in its"
            " ladder"
        ),
    ),
    "a server that a step takes along and nobody knows": (
        (
            GOOD + '[[servers.gpu-1.ladder]]\nkind = "reboot"\nhost = "alpha"\n'
            'also_restarts = ["gpu-9"]\n'
        ),
        (
            "fleet.toml: servers.gpu-1.ladder[0].also_restarts: gpu-9 is no server of this fleet"
            " — name a server, or leave it out"
        ),
    ),
    "a step whose load limit its cooldown hides": (
        (GOOD + '[[servers.gpu-1.ladder]]\nkind = "reboot"\nhost = "alpha"\ncooldown = "30m"\n'),
        (
            "fleet.toml: servers.gpu-1.ladder[0]: 15m can never be reached, since nothing is"
            ' judged within the cooldown of 30m — make it at least "30m"'
        ),
    ),
}
