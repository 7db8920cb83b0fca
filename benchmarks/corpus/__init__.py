"""The corpus: recorded runs of right and wrong kernels, and what the judge says of each.

`python -m benchmarks.corpus make | judge | compare`. Inputs are made again from their seeds,
outputs are stored in the cache folder. verdicts.jsonl.gz is the table of the judge that the next
one is compared with. It was written by `judge`, sorted by id.
"""
