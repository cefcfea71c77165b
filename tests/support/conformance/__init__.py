"""Engines for the tests of the conformance kit: faulty engines, and a toy engine."""
