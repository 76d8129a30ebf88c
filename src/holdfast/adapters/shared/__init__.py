"""What all adapters share: recorded model and tool calls, approvals, session logs, claims around foreign code."""
