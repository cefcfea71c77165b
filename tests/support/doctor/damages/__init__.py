"""The damaged tables for the tests of the doctor, and the rules whose violations the doctor must report."""

from __future__ import annotations

from tests.support.doctor.damaged_tables import Damage
from tests.support.doctor.damages.checkpoints import CHECKPOINTS
from tests.support.doctor.damages.commits import COMMITS
from tests.support.doctor.damages.derived import DERIVED
from tests.support.doctor.damages.files import FILES
from tests.support.doctor.damages.more import MORE
from tests.support.doctor.damages.protocols import PROTOCOLS
from tests.support.doctor.damages.schemas import SCHEMAS
from tests.support.doctor.damages.statistics import STATISTICS
from tests.support.doctor.damages.times import TIMES
from tests.support.doctor.damages.variants import VARIANTS
from tests.support.doctor.damages.vectors import VECTORS
from tests.support.doctor.damages.writers import WRITERS

DAMAGES: list[Damage] = [
    *TIMES,
    *COMMITS,
    *CHECKPOINTS,
    *DERIVED,
    *FILES,
    *STATISTICS,
    *VECTORS,
    *VARIANTS,
    *SCHEMAS,
    *PROTOCOLS,
    *WRITERS,
    *MORE,
]
