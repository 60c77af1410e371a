"""A process with all that it has started: which ones, and what CPU seconds they used, with the dead they waited for."""

from __future__ import annotations

import psutil


def processes_of(pid: int) -> list[psutil.Process]:
    """None where it is gone."""
    try:
        top = psutil.Process(pid)
        return [top, *top.children(recursive=True)]
    except psutil.Error:
        return []


def cpu_seconds(pid: int) -> float:
    return sum(map(cpu_of, processes_of(pid)))


def cpu_of(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)
