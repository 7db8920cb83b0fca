"""From a seed to its verdict: inputs, expectations, judging, comparison of builds, rejudging."""
