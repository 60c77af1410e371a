"""Marks shared by all rooms: `proves` names the mission rows and numbered rules of each test."""

from __future__ import annotations
