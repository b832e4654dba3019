"""Mutants that no result shows, and why: they count neither as killed nor as alive."""

# (file, a part of the change): reason
EQUIVALENT: dict[tuple[str, str], str] = {}
