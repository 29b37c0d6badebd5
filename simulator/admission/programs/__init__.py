"""Policies for programs: all turns of one agent, with tools that run between them."""
