"""The two text formats (SPEC O1.2)."""

from __future__ import annotations

from tuque.metrics.text import COUNTER, GAUGE, HISTOGRAM, Family, render, shown, wants_open


def test_counters_end_in_total() -> None:
    """O1.2 `/metrics` is OpenMetrics 1.0 if the header Accept names it, else the text format 0.0.4
    of Prometheus.
    """
    families = [
        Family("a_jobs", COUNTER, "Jobs").add(3, queue='q"\\\n').add(0.5, queue="r"),
        Family("a_level", GAUGE, "Level").add(1),
        Family("a_none", GAUGE, "Left out"),
    ]
    assert render(families, True).decode() == (
        "# TYPE a_jobs counter\n# HELP a_jobs Jobs\n"
        'a_jobs_total{queue="q\\"\\\\\\n"} 3\na_jobs_total{queue="r"} 0.5\n'
        "# TYPE a_level gauge\n# HELP a_level Level\na_level 1\n# EOF\n"
    )
    plain = render(families, False).decode()
    assert "# TYPE a_jobs_total counter\n# HELP a_jobs_total Jobs\n" in plain
    assert "EOF" not in plain


def test_buckets_add_up() -> None:
    text = render(
        [Family("t", HISTOGRAM, "T").add_histogram([1, 0, 2], [0.1, 5], 12.5, copies="2")], True
    ).decode()
    assert 't_bucket{copies="2",le="0.1"} 1\nt_bucket{copies="2",le="5.0"} 1\n' in text
    assert 't_bucket{copies="2",le="+Inf"} 3\n' in text
    assert 't_sum{copies="2"} 12.5\nt_count{copies="2"} 3\n' in text


def test_each_name_has_a_label_of_its_own() -> None:
    """O1.4 A name that is no text, is empty, has more than 128 characters, or is `other`, is cut
    after these and marked with `~` and a checksum
    """
    assert shown("é".encode()) == "é"
    assert shown(b"a\x00b") == "a\x00b" and shown(b"x" * 128) == "x" * 128
    assert shown(b"\xff\x00") == "\\xff\x00~6fe84c1288"
    names = [b"\xff", b"\\xff", b"", b"other", b"x" * 65_000, b"x" * 64_999 + b"y"]
    names += [shown(name).encode() for name in names if shown(name).encode() != name]
    names += ["\ud800".encode("utf-8", "surrogatepass"), b"\\xed\\xa0\\x80"]
    labels = [shown(name) for name in names]
    assert len(set(labels)) == len(names)
    assert max(map(len, labels)) == 139 and not {"", "other"} & set(labels)


def test_who_asks_for_open_metrics() -> None:
    assert wants_open("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.3")
    assert not wants_open("text/plain;version=0.0.4;q=0.5,*/*;q=0.1")
