"""The one expression language: columns, literals, comparison, boolean, `in`, `like`, `is null`. Parsed to a tree.

It never evaluates text, reads nothing and has bounded depth and size; on SQL stores it becomes bound parameters, never
text. It may import `errors` alone. Read `tree.py` first (what there is), then `parser.py`.
"""
