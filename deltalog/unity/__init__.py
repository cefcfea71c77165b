"""The API of Unity Catalog for Delta tables: its messages, and a client for the tables of any server that offers it.

``deltalog.server.unity`` is the server. Both use the same messages.

Spec: UC Delta API 1.0 (github.com/unitycatalog/unitycatalog, spec/protocols/ManagedTablesSpec.md and api/delta.yaml);
PROTOCOL.md#catalog-managed-tables.
"""
