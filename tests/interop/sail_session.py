"""A session of Sail for tests, run by the Python of Sail's environment. It reads one question per line and answers each
with one line, both as JSON: ``{"sql": …}`` or ``{"read": path, "options": {…}}``."""

from __future__ import annotations

import json
import os
import sys

from pysail.spark import SparkConnectServer
from pyspark.sql.connect.session import SparkSession


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what Sail prints must not mix with the answers
    server = SparkConnectServer("127.0.0.1", 0)
    server.start(background=True)
    spark = SparkSession.builder.remote(f"sc://127.0.0.1:{server.listening_address[1]}").getOrCreate()
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    for line in sys.stdin:
        question = json.loads(line)
        try:
            if "sql" in question:
                found = spark.sql(question["sql"])
            else:
                reader = spark.read.format("delta").options(**question.get("options", {}))
                found = reader.load(question["read"])
            answer = {"rows": [row.asDict(recursive=True) for row in found.collect()]}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {str(error).strip()}"}
        answers.write(json.dumps(answer, default=str) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
