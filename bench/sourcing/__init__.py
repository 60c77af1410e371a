"""Event sourcing beside the `eventsourcing` library on SQLite and PostgreSQL, in one run."""
