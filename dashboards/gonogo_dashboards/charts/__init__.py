"""Chart options for ECharts, and the plot of a job's seeds: pure, plain JSON."""
