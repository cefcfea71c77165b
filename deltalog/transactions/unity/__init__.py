"""What a Unity Catalog server does, for the tables of a deltalog catalog: staging and creation of tables, other
clients' commits with their changes of metadata, schemas, external tables. ``deltalog.server.unity`` offers it over
HTTP.

Spec: UC Delta API 1.0, ManagedTablesSpec.md.
"""
