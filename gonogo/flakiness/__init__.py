"""From stored numbers to findings: rates, why a test flickers, grades, change points, sequential stopping, masked or fixed.

Pure: values and arrays in, frozen dataclasses out, standard library and numpy only (the API imports it, and must not load scipy).
"""
