"""Engines for the tests of the conformance kit: wrong ones, and a toy."""
