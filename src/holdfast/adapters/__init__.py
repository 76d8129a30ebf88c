"""Holdfast below other people's frameworks. Each adapter is a package of its own and an extra to install."""
