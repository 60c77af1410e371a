"""Views over HTTP: listed, queried, waited for, followed as Server-Sent Events; and how long-running parts are.

It writes nothing and keeps nothing but what it may read again. Who may read a view decides the broker, asked by the
request's own user whether that one may read the view's topic. It may import `views` and the gateway's own modules.
Read `routes.py` first, then `feed.py` (one reader for all who follow a view), then `subscriber.py`.
"""
