"""From stored numbers to findings: rates, why a test flickers, grades, change points, sequential
stopping, masked or fixed.

Pure: values and arrays in, frozen dataclasses out, standard library and numpy only. The words,
rates, grades and causes load without numpy: the API starts with them.
"""
