"""Runs of the ready-made jobs: their command, what a user gets wrong, what Spark's failures become."""

from __future__ import annotations

from spark_ingest.jobs.runs import cause


def test_a_failed_query_is_told_in_one_line() -> None:
    failure = (
        "[STREAM_FAILED] Query [id = 1] terminated\nTraceback (most recent call last):\n"
        '  File "x.py", line 1\nspark_ingest.errors.GrantsError: grants=f is not a grant; ask\n'
        "\nJVM stacktrace:\norg.apache.spark.SparkException: Job aborted"
    )
    assert cause(failure) == "spark_ingest.errors.GrantsError: grants=f is not a grant; ask"
    assert cause("something else\nmore") == "something else"
