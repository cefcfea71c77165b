"""Changes of a table that is there: columns, constraints, features, properties, clustering."""
