"""The one table of routes. A part that brings some has its own tuple of rows, which is added here and nowhere else."""

from __future__ import annotations

from tidelog.gateway import captures, commands, probes, stores
from tidelog.gateway.metrics import serving as metrics
from tidelog.gateway.registry import routes as registry
from tidelog.gateway.route import Route
from tidelog.gateway.views import questions
from tidelog.gateway.views import routes as views

ROUTES: tuple[Route, ...] = (
    *probes.ROUTES,
    *metrics.ROUTES,
    *views.ROUTES,
    *questions.ROUTES,
    *registry.ROUTES,
    *stores.ROUTES,
    *commands.ROUTES,
    *captures.ROUTES,
)
