"""Tests of the MCP server, with the official client."""
