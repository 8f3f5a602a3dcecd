"""What several tests share: small clusters, hand-made timelines, writers of traces, counters."""
