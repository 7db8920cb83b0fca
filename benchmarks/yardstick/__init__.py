"""Compare GoNoGo's verdict with the gates of others, on the same kernels and inputs."""
