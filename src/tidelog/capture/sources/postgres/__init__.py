"""Changes of a PostgreSQL database, read by logical replication with its own plugin `pgoutput`."""
