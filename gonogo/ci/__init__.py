"""What other systems say of commits, and the rules that make jobs of it; pure: payloads in, values
out.
"""
