"""A running pipeline is asked what it knows of a key: by HTTP, and by topics alone.

The view has hours that are over. What came in since, only the operator knows: the question goes into its input, to
where the key's state is, and is answered by the micro-batch that reads it. Somebody it knows nothing of, an answer that
does not come in time, and a pipeline that does not run are three different answers.

tidelog run examples/ask_pipeline.py        then: tidelog ask hours ada
python examples/ask_pipeline.py             does it all with a broker of its own

Needs `pip install 'tidelog[spark,http]'` and nothing else but Java 17.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog import App

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

app = App("site")
app.stream("visits", value="user string, page string, at timestamp", event_time="at", watermark_delay="10 seconds")


@app.view("hours", key=["user", "window_start"])
def hours(visits: DataFrame, questions: DataFrame) -> DataFrame:
    from tidelog.operators import count, last, tumbling

    seen = {"visits": count(), "page": last("page")}
    return visits.transform(tumbling("1 hour", by="user", aggregates=seen, questions=questions)).drop("window_time")


if __name__ == "__main__":
    import json
    import subprocess
    import sys
    import tempfile
    import time
    import urllib.error
    import urllib.request

    import tidelog
    from tidelog.client import Cluster, Producer, topics
    from tidelog.views import Pipeline, ask

    def over_http(address: str, user: str) -> tuple[int, dict]:
        body = json.dumps({"key": {"user": user}}).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{address}/pipelines/hours/ask?timeout=20", body, headers)
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refused:
            return refused.code, json.load(refused)

    with (
        tempfile.TemporaryDirectory() as folder,
        tidelog.Broker(settings={"tidelog.http.listener": "127.0.0.1:0"}) as broker,
        Cluster(broker.bootstrap) as cluster,
    ):
        topics.create(cluster, "visits", partitions=1)
        with Producer(cluster) as producer:
            for minute, page in ((1, "/"), (5, "/tides")):
                visit = {"user": "ada", "page": page, "at": f"2026-03-01T10:{minute:02}:00Z"}
                producer.send("visits", json.dumps(visit).encode())
        words = ["--bootstrap", broker.bootstrap, "--memory", "512m", "--checkpoints", f"{folder}/checkpoints"]
        words += ["--store", f"sqlite:///{folder}/site.db"]
        running = subprocess.Popen(
            [sys.executable, "-m", "tidelog", "run", __file__, *words], stderr=subprocess.DEVNULL
        )
        try:
            while (found := over_http(broker.http, "ada"))[0] != 200 or found[1]["rows"][0]["visits"] < 2:
                assert running.poll() is None, "the run has ended"
                time.sleep(0.5)  # Spark is being started, or has read but one
            (hour,) = found[1]["rows"]
            print(f"ada, since {hour['window_start'][11:16]}: {hour['visits']} visits, the last of {hour['page']}")
            status, said = over_http(broker.http, "bob")
            print(f"bob: {status}, {said['message']}")
            (hour,) = ask(cluster, Pipeline("site", "hours"), "ada", timeout_s=60).rows
            print("by topics alone:", hour["visits"])
        finally:
            running.terminate()
            running.wait()
        status, said = over_http(broker.http, "ada")
        print(f"ada: {status}, {said['message']}")
