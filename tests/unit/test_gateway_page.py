"""The page on the gateway lists what the gateway answers and shows."""

import re
from pathlib import Path

from gateway import metrics
from gateway.faults import Fault, status_of
from gateway.mirror import Result
from gateway.pairing import Kept
from tests.unit.test_docs import PAGES, names, table
from worker.gateway_api import ORDERS

PAGE = PAGES["docs/gateway.md"]
#: Nobody is there to read an answer to these.
SILENT = {Fault.CLIENT_GONE, Fault.CLIENT_STALLED}


def test_every_fault_is_listed_with_its_status() -> None:
    listed = {names(row[0])[0]: int(row[1]) for row in table(PAGE, "faults")}
    assert listed == {fault.value: status_of(fault) for fault in Fault if fault not in SILENT}


def test_every_result_of_a_mirrored_request_is_listed() -> None:
    assert [names(row[0])[0] for row in table(PAGE, "results")] == [each.value for each in Result]


def test_everything_that_becomes_of_a_paired_sample_is_listed() -> None:
    assert [names(row[0])[0] for row in table(PAGE, "kept")] == [each.value for each in Kept]


def test_every_metric_is_listed() -> None:
    """A counter's name gets its ``_total`` from the library."""
    folder = Path(metrics.__file__).parent
    source = "".join((folder / f"{name}.py").read_text() for name in ("metrics", "generation"))
    declared = set(re.findall(r'"((?:steady_gateway|gen_ai_(?:client|server))_[a-z_]+)"', source))
    listed = {names(row[0])[0].removesuffix("_total") for row in table(PAGE, "metrics")}
    assert listed == declared


def test_every_order_is_listed() -> None:
    assert [names(row[0])[0] for row in table(PAGE, "orders")] == [
        " ".join(each) for each in ORDERS
    ]
