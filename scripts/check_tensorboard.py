#!/usr/bin/env python3
"""Reads a run's TensorBoard events with TensorBoard's own reader and compares them with metrics.jsonl.

    scripts/check_tensorboard.py RUN

Every scalar of metrics.jsonl must be there, at its step, equal after rounding to float32 (NaN for null), and
nothing else; the expert counts of every histogram must be those of its step. Needs the tensorboard package: where it
cannot be imported, it is installed with pip into build/tensorboard. Prints what was compared; exits 1 on a
difference.
"""

import json
import math
import struct
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def load_reader():
    try:
        from tensorboard.backend.event_processing import event_accumulator
    except ImportError:
        target = ROOT / "build" / "tensorboard"
        if not target.exists():
            subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--target", target, "tensorboard"],
                           check=True)
        sys.path.insert(0, str(target))
        from tensorboard.backend.event_processing import event_accumulator
    return event_accumulator


def float32(value):
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def same(a, b):
    return a == b or (math.isnan(a) and math.isnan(b))


def expected(run):
    """{tag: {step: value}} of the scalars, and of the lists, in metrics.jsonl."""
    scalars, lists = {}, {}
    for line in (run / "metrics.jsonl").read_text().splitlines():
        record = json.loads(line)
        step = record.pop("step")
        for tag, value in record.items():
            if isinstance(value, list):
                lists.setdefault(tag, {})[step] = value
            else:
                scalars.setdefault(tag, {})[step] = math.nan if value is None else float32(value)
    return scalars, lists


def differences(run):
    reader = load_reader()
    everything = {reader.SCALARS: 0, reader.HISTOGRAMS: 0}
    events = reader.EventAccumulator(str(run), size_guidance=everything).Reload()
    scalars, lists = expected(run)
    tags = events.Tags()
    if set(tags["scalars"]) != set(scalars):
        yield f"tags: {sorted(set(tags['scalars']) ^ set(scalars))} are on one side only"
    compared = 0
    for tag in sorted(set(tags["scalars"]) & set(scalars)):
        read = {event.step: event.value for event in events.Scalars(tag)}
        if read.keys() != scalars[tag].keys():
            yield f"{tag}: steps {sorted(read.keys() ^ scalars[tag].keys())[:5]} are on one side only"
        for step in sorted(read.keys() & scalars[tag].keys()):
            compared += 1
            if not same(read[step], scalars[tag][step]):
                yield f"{tag}, step {step}: {read[step]} here, {scalars[tag][step]} in metrics.jsonl"
    histograms = 0
    for tag in tags["histograms"]:
        for event in events.Histograms(tag):
            histograms += 1
            value = event.histogram_value
            if list(value.bucket) != lists.get(tag, {}).get(event.step):
                yield f"{tag}, step {event.step}: {list(value.bucket)} is not what metrics.jsonl has"
            if list(value.bucket_limit) != [i + 0.5 for i in range(len(value.bucket))]:
                yield f"{tag}, step {event.step}: the limits are {list(value.bucket_limit)}"
    print(f"{run}: {compared} scalars of {len(tags['scalars'])} tags, {histograms} histograms compared")
    if compared == 0:
        yield "nothing to compare"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    found = list(differences(Path(sys.argv[1])))
    for difference in found[:20]:
        print(difference)
    if found:
        sys.exit(f"{len(found)} differences")
    print("all equal")


if __name__ == "__main__":
    main()
