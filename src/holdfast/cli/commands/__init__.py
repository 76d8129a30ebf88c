"""Verbs by subject; `cli.command_table` maps verbs to modules. The click command of VERB is `VERB_command`."""
