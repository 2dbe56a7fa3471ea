"""One partition as a listener works on it: claiming due tasks, reconciling keys, sweeping."""
