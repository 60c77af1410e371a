"""Buffers that come and go in a Python worker stay with it, seen by the pages that the kernel hands out."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from proving import proves

PROGRAM = """
import resource
from tidelog.spark.worker_memory import keep_buffers
keep_buffers()
for number in range(60):
    if number == 10:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    held = [bytearray(4 << 20) for _ in range(4)]
    del held
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
PAGES_OF_ONE_ROUND = (16 << 20) // 4096


@proves("P1")
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told what to keep")
def test_large_buffers_are_used_again_and_not_asked_of_the_kernel() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60)
    assert int(done.stdout) < PAGES_OF_ONE_ROUND


@proves("P1")
def test_what_was_imported_is_not_searched_for_garbage_after_every_task_and_garbage_is_still_collected() -> None:
    program = """
import gc, weakref
from tidelog.spark.worker_memory import keep_buffers
keep_buffers()
print(len(gc.get_objects()) < 1000)
class Loop: pass
one = Loop(); one.itself = one
seen = weakref.ref(one)
del one
gc.collect()
print(seen() is None)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["True", "True"]
