"""Changes of an existing table: columns, constraints, features, properties, clustering."""
