"""Turns the pages that the tests of real engines saved into fixtures.

Left out are buckets of histograms and families of the HTTP library and of Python, which nobody
reads; every other line is as the engine wrote it. Run it as ``python -m tests.engines.trim``.
"""

import re
from pathlib import Path

from tests.engines.installed import HOME

FIXTURES = Path(__file__).parents[1] / "pages"
_LEFT_OUT = re.compile(
    r"(# (HELP|TYPE) )?(python_|http_|vllm:request_(?!success)|vllm:\w+_seconds|vllm:cache_config)"
)


def trimmed(page: str) -> str:
    lines = page.splitlines(keepends=True)
    return "".join(line for line in lines if "_bucket{" not in line and not _LEFT_OUT.match(line))


if __name__ == "__main__":
    FIXTURES.mkdir(exist_ok=True)
    for saved in sorted((HOME / "pages").glob("*.prom")):
        (FIXTURES / saved.name).write_text(trimmed(saved.read_text()))
