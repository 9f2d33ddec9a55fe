"""What a long-lived process has loaded is no garbage."""

import gc


def leave_loaded_alone() -> None:
    """Look for garbage among what is made from now on: a look at all that is loaded stops the
    process for 80 ms, and with it every stream.
    """
    gc.collect()
    gc.freeze()
