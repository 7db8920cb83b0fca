"""The corpus: recorded runs of right and wrong kernels, and what the judge says of each.

Inputs are made again from their seeds, outputs are stored in the cache folder. verdicts.jsonl.gz is
the table that the next judge is compared with: one JSON object a line, sorted by id, written by
`python -m benchmarks.corpus --write`. Runs are judged in the order of a hash of their ids, so a
table that isn't complete is a fair sample.

Columns: id (source/kernel/case/seed/edit); digest of the outputs; size, group and fault of the
label (run.Label); verdict, explanation, green; listed: whether the detection limits list the
fault; outputs: output -> [explanation, arithmetic, fault].
"""
