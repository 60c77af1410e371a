"""The kinds of databases that are captured, by the scheme of their URL (`opening.py`)."""
