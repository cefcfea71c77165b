"""Classes that several threads may decode at once have their decoders from the import of their modules: msgspec builds
the decoder of a class at its first use, and the process can crash if two threads do."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = """
import dataclasses, importlib, sys
import msgspec, msgspec._utils
module = importlib.import_module(sys.argv[1])
real, late = msgspec._utils._get_class_mro_and_typevar_mappings, []
def recorded(cls):
    late.append(cls.__name__)
    return real(cls)
msgspec._utils._get_class_mro_and_typevar_mappings = recorded
class Probe(msgspec.Struct):
    number: int
msgspec.json.Decoder(Probe)
assert late == ["Probe"], late
is_struct = lambda found: isinstance(found, type) and issubclass(found, msgspec.Struct)
for name in sys.argv[2:] or [name for name, found in vars(module).items() if is_struct(found)]:
    msgspec.json.Decoder(getattr(module, name))
print(*late[1:])
"""


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("deltalog.unity.messages", ""),
        ("deltalog.unity.objects", ""),
        ("deltalog.unity.http", "_OlderError ErrorResponse"),
        ("deltalog.transactions.unity.documents", ""),
        ("deltalog.server.unity.general", ""),
        ("deltalog.catalog.sqlite", "Marking TransactionRecord"),
        ("deltalog.catalog.dynamodb_layout", "Marking RatifiedCommit TableRecord TransactionRecord"),
        ("deltalog.read.origin", "Origin"),
        ("deltalog.maintenance.vacuum.removed_files", "_LastVacuum"),
        ("deltalog.protocol.actions", "Protocol Metadata AddFile RemoveFile DomainMetadata"),
    ],
)
def test_decoders_are_built_by_the_import(module: str, names: str) -> None:
    command = [sys.executable, "-c", _PROGRAM, module, *names.split()]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == []
