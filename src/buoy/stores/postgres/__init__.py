"""The PostgreSQL store: one database, any number of hosts. The files have the names of `stores/sqlite`."""
