"""Django's own tests of backends for tasks, from its source distribution, with ours."""
