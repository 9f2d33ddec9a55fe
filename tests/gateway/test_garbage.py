"""A process that serves is not stopped to look for garbage among what it has loaded."""

import subprocess
import sys

_LOOKS = """
import gc
from worker.gateway import run_gateway
from worker.garbage import leave_loaded_alone
class Loaded: pass
loaded = [Loaded() for _ in range(1000)]
leave_loaded_alone()
made = Loaded()
made.itself = made
looked_at = gc.get_objects()
assert not any(isinstance(each, Loaded) and each is not made for each in looked_at)
assert any(each is made for each in looked_at)
del made, looked_at
assert gc.collect() >= 1
print("ok")
"""


def test_what_is_loaded_is_not_looked_at_and_what_is_made_is() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _LOOKS], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout == "ok\n", done.stderr
