"""One short file for each API: unpack the request, decide, pack the reply. The version card is on top of each."""
