"""Commits to S3 through DynamoDB: two commit protocols, their DynamoDB tables, and a client."""
