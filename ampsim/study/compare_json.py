"""A comparison of two runs as one JSON object: unknown is null, never 0 and never NaN."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from ampsim.json_values import finite
from ampsim.study.compare import Comparison, Number
from ampsim.study.provenance import own_version
from ampsim.study.run_dir import KeptRun


def to_json(a: KeptRun, b: KeptRun, comparison: Comparison) -> str:
    """Return the comparison as JSON text that ends with a newline."""
    content = {
        "ampsim": own_version(),
        "a": _run(a),
        "b": _run(b),
        "is_identical": comparison.is_identical,
        "origin": [dataclasses.asdict(one) for one in comparison.origin],
        "numbers": [_number(one) for one in comparison.numbers],
        "tables": [dataclasses.asdict(one) for one in comparison.tables],
    }
    return json.dumps(finite(content), indent=2, allow_nan=False) + "\n"


def _run(run: KeptRun) -> dict[str, Any]:
    names = {"folder": str(run.folder), "model": run.model, "cluster": run.cluster}
    return {**names, "schedule": run.schedule, "ended": run.manifest.get("ended")}


def _number(number: Number) -> dict[str, Any]:
    return {
        **dataclasses.asdict(number),
        "difference": number.difference,
        "ratio": number.ratio,
    }
