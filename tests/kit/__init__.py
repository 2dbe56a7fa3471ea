"""What tests have in common: servers, listeners, steps of a task's life, and ways to wait.

What serves one folder of tests stands in that folder, beside its tests: the stage and the scene of
the fault tests, for instance.
"""
