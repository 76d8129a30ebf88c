"""An MCP server: models read runs, and people answer gates through the client of the model.

Reads return what the JSON API of the page returns, for the same users and with the same masks. A gate is answered by
elicitation only: no tool takes an answer from a model.
"""
