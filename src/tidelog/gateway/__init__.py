"""The one HTTP server: every route of Tidelog's, beside any broker that speaks Kafka's protocol.

It keeps no users and no data: who a request is decides the broker, asked over a connection with that request's
credentials. It runs in a process of its own, never in the broker's, and may import `client` and what that may, never
`broker` or `log`. Read `route.py` first (what a route is), then `routes.py` (all of them), then `app.py`.
"""
