"""JSON Schema, drafts 4 to 2020-12, compared by the rules that registries have for it.

A schema that refers outside is only ever resolved from the references that come with it; nothing is fetched, and no
regular expression is run. Needs `jsonschema` (for the drafts' own schemas) and its `referencing`. Read `shape.py` first
(what a value of JSON means as a schema), then `parse.py` and `compatibility.py`.
"""
