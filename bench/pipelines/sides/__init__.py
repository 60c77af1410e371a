"""One program a side: it is given its work as JSON, and says by the marks of `watch.py` when it began and ended.

Programs of peers run in environments of their own and import nothing of Tidelog; they read the topics that everybody
reads. `marks.py` is all that they share.
"""
