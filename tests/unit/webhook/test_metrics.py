from webhook.metrics import Histogram, Metrics


def test_a_scrape_shows_what_was_counted_and_no_creation_times():
    metrics = Metrics()
    metrics.reviews["/mutate", "CREATE", "patched"] += 2
    metrics.codes["CS104"] += 1
    metrics.seconds.observe(0.0002)
    text = metrics.exposition().decode()
    assert 'cardshare_webhook_reviews_total{operation="CREATE",path="/mutate",verdict="patched"} 2.0' in text
    assert 'cardshare_webhook_findings_total{code="CS104"} 1.0' in text
    assert 'cardshare_webhook_review_seconds_bucket{le="0.00025"} 1.0' in text
    assert "_created" not in text


def test_a_value_on_a_bound_counts_below_it():
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 9.0):
        histogram.observe(value)
    assert histogram.buckets() == [("1.0", 2), ("2.0", 3), ("+Inf", 4)]
    assert histogram.total == 12.0
