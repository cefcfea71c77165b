"""The page "From delta-spark" lists the public names that delta-spark and PySpark currently have."""

from __future__ import annotations

from tests.support.spark import delta_spark_members


def test_the_tables_of_members_are_current() -> None:
    text = delta_spark_members.PAGE.read_text(encoding="utf-8")
    assert delta_spark_members.page(text) == text, "run python -m tests.support.spark.delta_spark_members"


def test_every_note_is_of_a_member() -> None:
    text = delta_spark_members.tables()
    assert [name for name in delta_spark_members.NOTES if f"| `{name}` |" not in text] == []
