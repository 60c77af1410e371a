"""The memory of a Python worker of Spark's, which has buffers of megabytes come and go many times a second.

By itself glibc gives such buffers back to the kernel whenever one is freed, and the kernel hands out the next one page
by page, each zeroed: half of what a worker did was that. Here they are kept for the next; at most KEPT_BYTES lie idle.
Other C libraries are left as they are.

After every task PySpark collects garbage, through all that was ever imported: 15 ms of a micro-batch that may have 40.
What is there when the first task begins is taken out of that (`gc.freeze`); what tasks leave is still collected.
"""

from __future__ import annotations

KEPT_BYTES = 64 << 20
LARGEST_BYTES = 32 << 20  # larger buffers go back at once; glibc takes no more than this

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # mallopt's names for them

_kept = False


def keep_buffers() -> None:
    """For this process, once."""
    global _kept
    if _kept:
        return
    _kept = True
    import ctypes
    import gc

    gc.freeze()

    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    mallopt(_MMAP_THRESHOLD, LARGEST_BYTES)
    mallopt(_TRIM_THRESHOLD, KEPT_BYTES)
