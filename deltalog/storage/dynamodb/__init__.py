"""DynamoDB beside S3: two commit protocols, their tables, and the client that asks for items."""
