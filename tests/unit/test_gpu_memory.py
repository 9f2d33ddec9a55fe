"""GPU memory: what nvidia-smi says, who still holds it, and what is wanted."""

import pytest

from fleet.contracts.host import GpuHolder, HostErrorType
from fleet.gpu_memory import (
    GpuMemory,
    apps_argv,
    gpus_argv,
    held_by,
    holders,
    in_words,
    lacking,
)
from fleet.host_replies import Reply, ReplyError

APPS = "4711, 70000, GPU-aa, /usr/bin/python3 -m, vllm\n12, [N/A], GPU-bb, [Not Found]\n"
GPUS = "0, GPU-aa, 2000\n1, GPU-bb, 80000\n"


def test_who_holds_what_is_read_with_names_that_hold_commas_or_nothing() -> None:
    found = holders(Reply(0, APPS))
    assert found == [
        GpuHolder(pid=4711, mib=70000, gpu="GPU-aa", name="/usr/bin/python3 -m, vllm"),
        GpuHolder(pid=12, mib=None, gpu="GPU-bb", name="[Not Found]"),
    ]
    assert held_by(found, {12, 13}) == found[1:]
    assert holders(Reply(0, "\n")) == []
    assert "process 12 ([Not Found]) holds memory of GPU-bb" in in_words(found)


def test_of_many_holders_the_first_are_named_and_the_others_counted() -> None:
    many = [GpuHolder(pid=n, mib=1, gpu="GPU-a", name="x") for n in range(20)]
    assert in_words(many).endswith("and 12 more")


@pytest.mark.parametrize("text", ["nonsense", "x, 1, GPU, name", "1, 2"])
def test_an_answer_that_makes_no_sense_is_no_free_memory(text: str) -> None:
    with pytest.raises(ReplyError, match="can't be understood"):
        holders(Reply(0, text))


def test_a_host_without_the_program_is_a_mistake_of_the_configuration() -> None:
    with pytest.raises(ReplyError) as caught:
        holders(Reply(127, "", "nvidia-smi: not found"))
    assert caught.value.kind is HostErrorType.MISCONFIGURED


@pytest.mark.parametrize(
    ("memory", "short"),
    [
        (GpuMemory(free="70GiB"), ["GPU 0 has 2000 MiB free, 71680 wanted"]),
        (GpuMemory(free="70 GiB", gpus=(1,)), []),
        (GpuMemory(free="70000MiB", gpus=("GPU-aa",)), ["GPU 0 has 2000 MiB free, 70000 wanted"]),
        (GpuMemory(free="1GiB"), []),
    ],
)
def test_so_much_must_be_free_on_each_of_the_gpus(memory: GpuMemory, short: list[str]) -> None:
    assert lacking(memory, Reply(0, GPUS)) == short


def test_a_gpu_that_is_not_there_is_said() -> None:
    with pytest.raises(ReplyError, match="has no GPU 7"):
        lacking(GpuMemory(free="1GiB", gpus=(7,)), Reply(0, GPUS))


def test_the_program_may_be_another() -> None:
    memory = GpuMemory(cli=("sudo", "-n", "nvidia-smi"))
    assert apps_argv(memory)[:3] == gpus_argv(memory)[:3] == ("sudo", "-n", "nvidia-smi")
