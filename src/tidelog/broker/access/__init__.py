"""Who may do what, and how much of it: users, access rules and quotas, a fold over `__tidelog.access`.

Nothing here touches a socket or a file: `shell` is given the log, sessions are given frames. What is asked of each API
is one table, `rules`; read it first. It is loaded when a listener, a rule or a quota needs it, never before.
"""
