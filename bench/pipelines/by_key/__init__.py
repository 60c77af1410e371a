"""What every stateful operator of the bench does, by hand: `transformWithState` with a group a key, as Spark means it.

Rules:
- A program puts out the rows that its operator does, micro-batch by micro-batch; `_seq` alone, which an operator
  numbers over many keys, is left out. The bench compares the two, and so do its tests, with late rows too.
- Every call of Spark's is a round trip between Python and the JVM: so a key has one value of state and one timer
  (`turns.py`), times are numbers of milliseconds, and what is put out becomes timestamps in the JVM.
- It is for the columns of the bench, `key`, `value` and a time, and for the durations that the operators have there.

Read `turns.py` first, then any of the others.
"""
