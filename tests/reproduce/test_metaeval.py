"""The comparison of metrics on WMT20: run by ``make check-data``, skipped where the data are not at hand."""

from __future__ import annotations

import pytest

from doubtless.reproduce import Options, find

pytestmark = pytest.mark.data


def test_learned_metrics_beat_lexical_ones_and_the_ensemble_leads(data):
    pytest.importorskip("sacrebleu")
    rows = find("metaeval-wmt20").run(str(data), Options(splits=2, quick=True))
    segment = {row["metric"]: row for row in rows if row["level"] == "segment"}
    assert set(segment) == {"comet", "ensemble", "ens3", "ens7", "ens89", "ens891", "chrF", "BLEU"}
    assert segment["ensemble"]["r#"] == segment["ensemble"]["acc#"] == 1
    assert segment["comet"]["acc"] > segment["chrF"]["acc"] + 0.02
    assert segment["comet"]["acc#"] < segment["BLEU"]["acc#"]
    assert segment["ensemble"]["ups"] > 0
    assert all(abs(row["coverage"] - 0.9) < 0.02 for row in segment.values())
    system = {row["metric"]: row for row in rows if row["level"] == "system"}
    assert all(row["spa"] > 0.8 for row in system.values())
