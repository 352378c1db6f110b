"""MCP (Model Context Protocol) server: the tools, resources and prompts of one graph for agents, over stdio."""
