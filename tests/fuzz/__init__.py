"""A seeded mutation fuzzer for every kind of file that a reader relies on: see ``python -m tests.fuzz --help``.

tables      whole tables in memory, written by hand so that every log shape is covered
mutations   damages bytes and JSON on purpose
parquet     damages the structure of Parquet files
footers     damages the content of Parquet footers
entrances   every way for a foreign Parquet file to enter
targets     what is damaged, and what must still hold afterwards
usage       uses a table as users do, with each step's outcome as a value
runner      a supervised worker process for each target
guided      the same targets under atheris, guided by coverage
"""
