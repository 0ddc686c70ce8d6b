"""Agents: whatever turns a task into candidate solutions. None is trusted; all are judged by the same evaluation.

Reading order: request (what an agent is told), agent (the interface), search (the built-in one: templates and schedules).
Imports codegen and schema only: timing is handed in, so an agent never judges itself.
"""
