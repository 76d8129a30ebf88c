"""The command `holdfast`. `entry.main` is where it begins; each verb is a module of `commands`."""
