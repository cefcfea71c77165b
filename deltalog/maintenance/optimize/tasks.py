"""Rewrites the bins of an optimization in other processes, such as the tasks of a Spark job.

A task may be attempted more than once, even concurrently. Each attempt uses its own file names; only the files of the
attempts that the job returns are committed.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from deltalog.arrow_arrays import for_ipc
from deltalog.maintenance.optimize.rewritten_bins import BinWriter, Rewrite, Rewritten
from deltalog.protocol.actions import AddFile
from deltalog.storage.base import keep_cleanup_errors
from deltalog.write.data_files import discard, remove_job_files


@dataclass(frozen=True)
class BinTasks:
    """Rewrites the bins of a batch. The object can be pickled; the pickle contains the storage options, including any
    secrets. ``job``: an id that follows ``part-`` in the names of the new files. ``bins``: the files of each bin,
    encoded as bytes for ``run``."""

    writer: BinWriter
    rewrite: Rewrite
    job: str

    @classmethod
    def for_writer(cls, writer: BinWriter, rewrite: Rewrite) -> BinTasks:
        """Tasks that rewrite bins as ``writer`` does, under a new job id."""
        return cls(writer.for_tasks(), rewrite, str(uuid.uuid4()))

    def run(self, files: bytes, attempt: str) -> str:
        """Rewrite one bin. ``files``: from ``packed``. ``attempt``: letters, digits and dashes, unique to the attempt.
        Returns the result as a string, which ``unpacked`` decodes. On any error, tries to delete the new files. Raises
        as ``BinWriter.rewrite``. Cost: as there."""
        writer = replace(self.writer, new_uuid=lambda: f"{self.job}-{attempt}-{uuid.uuid4().hex}", paths=[])
        try:
            done = self.rewrite(writer, pa.ipc.open_stream(files).read_all())
        except BaseException as error:
            keep_cleanup_errors(error, discard(writer.store, writer.paths))
            raise
        unused = {*writer.paths} - {add.path for add in done.adds}
        discard(writer.store, unused)
        return json.dumps({"adds": [add.to_json() for add in done.adds], "rows": done.rows})

    def remove_all(self) -> None:
        """Try to delete all files of the job. Cost: as ``remove_job_files``."""
        remove_job_files(self.writer.store, self.job, self.writer.write)


#: Runs the rewrites of bins elsewhere: receives the tasks and the bytes of each bin for ``BinTasks.run``, and returns
#: the results in the order of the bins.
RewriteBins = Callable[[BinTasks, Sequence[bytes]], Iterator[str]]


def packed(files: pa.Table) -> bytes:
    """Serialize the files of a bin."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, files.schema) as writer:
        for batch in files.to_batches():
            writer.write_batch(for_ipc(batch))
    data: bytes = sink.getvalue().to_pybytes()
    return data


def unpacked(text: str) -> Rewritten:
    """Parse the result of a task."""
    body = json.loads(text)
    return Rewritten([AddFile.from_json(add) for add in body["adds"]], body["rows"])
