"""What the load tool prints, as figures."""

import pytest

from benchmarks.serving import figures_of, sentences
from configs.errors import InputError

REPORT = """Running 20s test @ http://127.0.0.1:8000/predict
  1 threads and 32 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     1.04s     1.13s    4.71s    84.27%
  Latency Distribution
     50%  657.37ms
     90%    3.33s
     99%    4.48s
  667 requests in 20.92s, 330.12KB read
  Socket errors: connect 0, read 1, write 0, timeout 2
  Non-2xx or 3xx responses: 12
Requests/sec:     31.89
Transfer/sec:     15.78KB
"""


def test_figures_of_a_report():
    assert figures_of(REPORT) == {
        "texts_per_second": 31.89, "refused": 12, "socket_errors": 3,
        "latency": {"p50": "657.37ms", "p90": "3.33s", "p99": "4.48s"}}
    calm = "\n".join(line for line in REPORT.splitlines() if "rrors" not in line
                     and "Non-2xx" not in line)
    assert figures_of(calm)["refused"] == figures_of(calm)["socket_errors"] == 0
    with pytest.raises(InputError, match="told no rate"):
        figures_of("unable to connect")


def test_sentences_are_real_ones():
    texts = sentences(50)
    assert len(texts) == 50 and all(0 < len(text) < 600 for text in texts)
