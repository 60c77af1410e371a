"""What a topic does when producers are faster than its consumers: `tidelog.overload.policy`.

buffer    nothing: the disk holds it, and retention cuts it; topics without a policy never come here
drop      the oldest records go; the ledger has what each group lost
block     producers are made to wait for the groups that the topic names
"""
