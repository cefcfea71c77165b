"""What a Unity Catalog does, on the tables of a catalog: staging and creation of tables, commits of other clients with
metadata, schemas, external tables. ``deltalog.server.unity`` offers it over HTTP.

Spec: UC Delta API 1.0, ManagedTablesSpec.md.
"""
