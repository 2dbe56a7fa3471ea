"""Django: settings, handlers in apps, `manage.py expirebridge`, and tasks made on commit.

Add `expirebridge.contrib.django` to INSTALLED_APPS. Needs the extra `django`.
"""

from expirebridge.contrib.django.on_commit import amake_task, make_task
from expirebridge.task.options import TaskOptions

__all__ = ["TaskOptions", "amake_task", "make_task"]
