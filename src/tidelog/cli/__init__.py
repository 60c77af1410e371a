"""The command line: one file a command, plain functions over `client`, any broker by `--bootstrap`.

It holds no knowledge of its own: what a command shows it asked a broker for, what it changes it asked a broker to
change. It may import every other room, but late: `main.py` looks at the first word and loads that command alone,
since `tidelog up` must answer a tenth of a second after it is typed. Read `main.py` first, then `topics.py` as a
typical command.
"""
