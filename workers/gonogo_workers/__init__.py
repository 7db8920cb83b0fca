"""The device side: takes chunks from the queue, runs kernels in child processes, sends every seed's
numbers back.
"""
