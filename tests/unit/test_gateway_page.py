"""The page on the gateway lists what the gateway answers and shows."""

from gateway.faults import Fault, status_of
from tests.unit.test_docs import PAGES, names, table

PAGE = PAGES["docs/gateway.md"]
#: Nobody is there to read an answer to these.
SILENT = {Fault.CLIENT_GONE, Fault.CLIENT_STALLED}


def test_every_fault_is_listed_with_its_status() -> None:
    listed = {names(row[0])[0]: int(row[1]) for row in table(PAGE, "faults")}
    assert listed == {fault.value: status_of(fault) for fault in Fault if fault not in SILENT}
