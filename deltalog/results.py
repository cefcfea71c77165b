"""The types of results and of some values in them, for type annotations."""

from deltalog.doctor.findings import Finding
from deltalog.log.cleanup import CleanupDecision
from deltalog.log.commit_summary import AddedFileSummary, CommitSummary
from deltalog.maintenance.vacuum.decisions import VacuumedFile
from deltalog.protocol.timestamps import Enablement
from deltalog.read.changes import ChangeFile
from deltalog.write_contract.stream import StreamWriter

__all__ = [
    "AddedFileSummary",
    "ChangeFile",
    "CleanupDecision",
    "CommitSummary",
    "Enablement",
    "Finding",
    "StreamWriter",
    "VacuumedFile",
]
