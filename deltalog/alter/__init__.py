"""Changes to an existing table: columns, constraints, features, properties, clustering."""
