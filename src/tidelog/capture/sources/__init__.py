"""The kinds of databases that can be captured, a folder each."""
