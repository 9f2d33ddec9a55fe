"""Output that nobody reads to its end."""

import os
import subprocess
import sys
from pathlib import Path

_EXAMPLE = Path(__file__).parents[2] / "fleet.example.toml"
_AUDIT = (
    "import sys; sys.argv = ['steady', 'audit', sys.argv[1]]; from worker.cli import main; main()"
)


def test_a_reader_that_has_had_enough_is_no_fault() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-c", _AUDIT, str(_EXAMPLE)],
        cwd=_EXAMPLE.parent,
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")
