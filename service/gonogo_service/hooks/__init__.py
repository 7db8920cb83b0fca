"""What comes in: deliveries from GitHub and other CI are verified, worked off by the rules, and
fetched where they were missed.
"""
