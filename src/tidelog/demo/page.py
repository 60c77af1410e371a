"""The page, as routes of the one HTTP server: a document, its style, its script and its icon, all from here.

The page may load and ask nothing but this server (`CSP`): it says so itself, and a test reads it. It is open, for it
holds nothing; what it shows it asks from routes that are as guarded as ever.
"""

from __future__ import annotations

from pathlib import Path

from tidelog.gateway.route import Answer, Call, Handle, Route

FOLDER = Path(__file__).parent / "page"
PATH = "/demo"
CSP = "; ".join(
    [
        "default-src 'none'",
        "connect-src 'self'",
        "img-src 'self'",
        "script-src 'self'",
        "style-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
)
HEADERS = (
    ("Content-Security-Policy", CSP),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)
FILES = {
    PATH: ("page.html", "text/html"),
    f"{PATH}/page.css": ("page.css", "text/css"),
    f"{PATH}/page.js": ("page.js", "text/javascript"),
    f"{PATH}/icon.svg": ("icon.svg", "image/svg+xml"),
}


def _serves(name: str, kind: str) -> Handle:
    def serve(_call: Call) -> Answer:
        return Answer((FOLDER / name).read_bytes(), f"{kind}; charset=utf-8", headers=HEADERS)

    return serve


ROUTES = tuple(
    Route("GET", path, _serves(name, kind), f"The demo's page: {name}", open=True, gives=(kind,), tag="demo")
    for path, (name, kind) in FILES.items()
)
