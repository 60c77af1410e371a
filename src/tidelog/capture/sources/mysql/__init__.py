"""MySQL and MariaDB: the binlog by row events, and snapshots at one position of it."""
