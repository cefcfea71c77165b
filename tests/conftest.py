from __future__ import annotations

import sys
from pathlib import Path

# The tests' own support packages are imported as `tests.<name>`, whatever directory pytest is started in.
_ROOT = str(Path(__file__).resolve().parents[1])
if _ROOT not in sys.path:
    sys.path.insert(0, _ROOT)

from hypothesis import settings  # noqa: E402

from tests.s3_env import ministack, moto  # noqa: E402, F401  (servers for whoever asks for them)

# No test judges a time: a busy machine must not fail an example.
settings.register_profile("deltalog", deadline=None)
settings.load_profile("deltalog")
