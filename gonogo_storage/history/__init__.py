"""A test over builds and days: samples, trends, assessments, and the flags that follow."""
