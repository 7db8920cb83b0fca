"""Derive findings from stored numbers: rates, causes of flakes, grades, changes, masked faults.

It also decides when sequential jobs stop. It is pure: values and arrays in, frozen dataclasses out,
standard library and numpy only. The words, rates, grades and causes load without numpy, because the
API starts with them.
"""
