"""Sides of the rows about brokers."""

from __future__ import annotations

TIDELOG_DISK = "tidelog, synced"
TIDELOG_MEMORY = "tidelog, memory"
KAFKA = "kafka, default"
KAFKA_DISK = "kafka, synced"
MOCK = "mock in C"
SIDES = (TIDELOG_DISK, TIDELOG_MEMORY, KAFKA, KAFKA_DISK, MOCK)
