"""`corrected_time(...)`: when something happened, by a device whose clock is wrong, from three timestamps.

The device says when it *occurred* and when it *sent* it, both by its own clock; the server says when it *received* it,
by a clock that is right. What the device's clock is wrong by is in both its times, and not in their difference:

    corrected = received - (sent - occurred)

The time on the way is taken for a fault of the clock, and is added. So is what passes between an attempt to send that
failed and the one that was received, if `sent` is the time of the first: stamp `sent` on every attempt.

    verdict     when                                                       corrected time
    corrected   otherwise                                                  as above: never after `received`
    stepped     sent < occurred: the clock was set back in between         `received`; how old it was nobody knows
    trusted     |received - sent| is below `threshold`                     `occurred`, but not after `received`
    unknown     `sent` or `received` is missing                            `occurred` as it is
    (null)      `occurred` is missing                                      null

Rules:
- A clock that is wrong by a constant makes no difference, unless a `threshold` lets it.
- A time in the future would carry Spark's watermark with it, and all rows after it would be late. So no verdict but
  `unknown` gives a time after `received`.
- Records of one request share one `sent`: each is corrected by the same amount.
- Nothing can be said of a server's clock that is wrong. Take the time that the broker gives: a topic with
  `message.timestamp.type=LogAppendTime`, and the column `timestamp`.

Both are native expressions: they run in the JVM, in streams and in batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.pipelines.operators.durations import Duration, milliseconds

if TYPE_CHECKING:
    from pyspark.sql import Column

CORRECTED, STEPPED, TRUSTED, UNKNOWN = "corrected", "stepped", "trusted", "unknown"


def corrected_time(
    occurred: Column | str, sent: Column | str, received: Column | str, *, threshold: Duration = "0 seconds"
) -> Column:
    """For `df.withColumn("at", corrected_time("occurred", "sent", "timestamp"))`. Columns are timestamps.

    With a `threshold`, clocks that are wrong by less are taken as they are, and the time on the way is not added.
    """
    from pyspark.sql import functions as F

    happened, left, came = _micros(occurred), _micros(sent), _micros(received)
    verdict = clock_verdict(occurred, sent, received, threshold=threshold)
    told = (
        F.when(verdict == UNKNOWN, happened)
        .when(verdict == STEPPED, came)
        .when(verdict == TRUSTED, F.least(happened, came))
        .when(verdict == CORRECTED, came - (left - happened))
    )
    return F.timestamp_micros(told)


def clock_verdict(
    occurred: Column | str, sent: Column | str, received: Column | str, *, threshold: Duration = "0 seconds"
) -> Column:
    """What `corrected_time` makes of the same three: text to count by, and to divert what is doubtful."""
    from pyspark.sql import functions as F

    happened, left, came = _micros(occurred), _micros(sent), _micros(received)
    least = milliseconds(threshold, what="threshold") * 1000
    return (
        F.when(happened.isNull(), F.lit(None).cast("string"))
        .when(left.isNull() | came.isNull(), F.lit(UNKNOWN))
        .when(left < happened, F.lit(STEPPED))
        .when(F.abs(came - left) < F.lit(least), F.lit(TRUSTED))
        .otherwise(F.lit(CORRECTED))
    )


def _micros(time: Column | str) -> Column:
    from pyspark.sql import functions as F

    return F.unix_micros(F.col(time) if isinstance(time, str) else time)
