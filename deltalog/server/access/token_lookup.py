"""Tokens and access keys found in the catalog, with a cache."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TokenSettings:
    """How the server finds tokens in its catalog. ``cache_seconds``: a change of a token takes effect within this time.
    ``cached``: how many tokens are kept in memory. ``guesses``: how many unknown tokens an address may send in
    ``guess_seconds``; further ones are refused without asking the catalog. ``lookup_seconds``: how long a caller waits
    for the catalog."""

    cache_seconds: float = 5
    cached: int = 10_000
    guesses: int = 20
    guess_seconds: float = 60
    lookup_seconds: float = 5
