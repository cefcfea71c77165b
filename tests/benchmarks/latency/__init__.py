"""Operations on an S3 server behind a proxy that delays each request: requests, rounds and seconds."""
