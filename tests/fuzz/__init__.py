"""A seeded mutation fuzzer over every file that a reader trusts: see ``python -m tests.fuzz --help``.

tables      whole tables in memory, made by hand so that every log shape is there
mutations   bytes and JSON, damaged on purpose
parquet     Parquet files, damaged by structure
footers     Parquet footers, damaged by what they say
entrances   every way by which a foreign Parquet file comes in
targets     what is damaged, and what must still hold afterwards
usage       a table as users use it, each step's outcome as a value
runner      a watched worker process for each target
guided      the same targets under atheris, guided by coverage
"""
