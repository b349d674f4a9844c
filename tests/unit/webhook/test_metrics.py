import json

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


def test_the_figures_of_two_processes_add_up_and_the_soonest_end_stands():
    one, other, total = Metrics(), Metrics(), Metrics()
    for metrics, ends_s in ((one, 200.0), (other, 100.0)):
        metrics.reviews["/mutate", "CREATE", "patched"] += 2
        metrics.refused_calls[404] += 1
        metrics.seconds.observe(0.0002)
        metrics.in_flight = 1
        metrics.certificate_expires_s = ends_s
    total.add(json.loads(json.dumps(one.figures())))
    total.add(json.loads(json.dumps(other.figures())))
    assert total.reviews == {("/mutate", "CREATE", "patched"): 4}
    assert (total.refused_calls, total.in_flight, total.certificate_expires_s) == ({404: 2}, 2, 100.0)
    assert sum(total.seconds.counts) == 2


def test_of_a_process_that_is_gone_only_what_it_counted_is_added():
    gone, total = Metrics(), Metrics()
    gone.failures, gone.in_flight, gone.certificate_expires_s = 3, 2, 100.0
    total.add(gone.figures(), gone=True)
    assert (total.failures, total.in_flight, total.certificate_expires_s) == (3, 0, 0.0)
