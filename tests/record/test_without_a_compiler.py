"""Where the compiled codec is missing, its twin does the work, and says so once."""

from __future__ import annotations

import subprocess
import sys

from proving import proves

WITHOUT = """
import sys, warnings
sys.modules["tidelog.record._codec"] = None
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from tidelog.record import codec, columns, partitioner
    batch = columns.encode([(b"key", b"value", [("a", None)], 5)], compression="lz4")
    (row,) = columns.decode(batch).rows()
    codec.check(batch), codec.scan(batch), partitioner.partition_of(b"key", 3)
print(codec.COMPILED, codec.engine(), row.value.decode(), len(caught))
print(caught[0].category.__name__, caught[0].message)
"""


@proves("T1")
def test_the_twin_steps_in_with_one_warning() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True)
    facts, warning = done.stdout.splitlines()
    assert facts == "False python value 1"
    assert warning.startswith("RuntimeWarning the compiled record codec is missing")
    assert "install a C compiler" in warning
