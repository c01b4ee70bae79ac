"""What a run draws depends on its seed, and on nothing that a process happened to import before."""

from __future__ import annotations

import subprocess
import sys

_IMPORT_AFTER_SEED = """
from sonosco_like.training.randomness import generator_states, seed_everything
seed_everything(3)
before = generator_states()
import sonosco_like.catalog
after = generator_states()
assert before["python"] == after["python"]
assert (before["numpy"][1] == after["numpy"][1]).all()
assert before["torch"].equal(after["torch"])
"""


def test_rooms_that_are_imported_after_the_seed_is_set_draw_nothing():
    done = subprocess.run([sys.executable, "-c", _IMPORT_AFTER_SEED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
