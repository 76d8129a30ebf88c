"""One module for each verb, with a click command named `command`."""
