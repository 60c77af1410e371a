"""Commands become events, and events state: deciders, the store of histories, read models, erasure."""
