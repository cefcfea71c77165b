"""A seeded mutation fuzzer for every kind of file that a reader relies on: see ``python -m tests.fuzz --help``.

tables      complete in-memory tables, written by hand to cover every log layout
mutations   damages bytes and JSON
parquet     damages the structure of Parquet files
footers     damages the content of Parquet footers
entrances   every call that takes a foreign Parquet file
targets     one for each kind of file to damage, with the checks afterwards
usage       uses a table as users do, and returns the outcome of each step
runner      runs a supervised worker process for each target
guided      runs the same targets under atheris, guided by coverage
"""
