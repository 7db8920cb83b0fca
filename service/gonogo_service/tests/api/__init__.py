"""Tests over HTTP: history, attribution, change points, gauges, bisections, rejudgements."""
