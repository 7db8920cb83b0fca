"""From a seed to its verdict: inputs, expected outputs, judging, comparison of builds, rejudging."""
