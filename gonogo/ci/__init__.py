"""Events from other systems about commits, and the rules that start jobs for them.

It is pure: payloads in, values out.
"""
