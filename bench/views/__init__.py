"""Figures of views: how fast stores take changes, how fresh views are, and how many can follow one."""
