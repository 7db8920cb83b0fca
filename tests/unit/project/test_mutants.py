"""The mutations that benchmarks/mutants plants."""

from __future__ import annotations

from benchmarks.mutants.mutations import mutations

SOURCE = '''
LIMIT = 5


def f(x: int | None, log) -> float:
    """Say nothing of 3 + 4."""
    if x is None:
        raise ValueError("é" + str(1 + 2))
    log.info("%d", x + 1)
    words = "é"; return min(x, 2.5) if x < 7 and not log else 0

    class Inner:
        def g(self):
            save(True)
'''.encode()


def test_each_mutation_changes_one_thing_of_a_function_s_work() -> None:
    """Constants of the module, texts, errors, log lines and annotations stay."""
    assert [(mutation.line, str(mutation)) for mutation in mutations(SOURCE)] == [
        (7, 'if x is None: raise ValueError("é" + str(1 + 2))  ->  pass'),
        (7, "x is None  ->  (x is not None)"),
        (10, "min(x, 2.5)  ->  (max(x, 2.5))"),
        (10, "2.5  ->  (2500.0)"),
        (10, "x < 7  ->  (x <= 7)"),
        (10, "x < 7 and not log  ->  (x < 7 or not log)"),
        (10, "7  ->  (8)"),
        (10, "not log  ->  (log)"),
        (10, "0  ->  (1)"),
        (14, "save(True)  ->  pass"),
        (14, "True  ->  (False)"),
    ]


def test_a_mutation_is_exactly_its_own_change() -> None:
    for mutation in mutations(SOURCE):
        changed = mutation.apply(SOURCE)
        compile(changed, "changed", "exec")
        assert changed[: mutation.start] == SOURCE[: mutation.start]
        assert changed.endswith(SOURCE[mutation.end :])
